package oracle;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;

/** A command line: words, {@code --name value} options and {@code --flag}s, each known beforehand. */
final class Args {
    /** A command line that cannot be obeyed: reported in one line, exit status 2. */
    static final class UsageException extends RuntimeException {
        UsageException(String message) {
            super(message);
        }
    }

    private final List<String> words = new ArrayList<>();
    private final Map<String, String> options = new HashMap<>();

    Args(String[] args, Set<String> valued, Set<String> flags) {
        for (int i = 0; i < args.length; i++) {
            String arg = args[i];
            if (!arg.startsWith("--")) {
                words.add(arg);
            } else if (flags.contains(arg.substring(2))) {
                options.put(arg.substring(2), "");
            } else if (!valued.contains(arg.substring(2))) {
                throw new UsageException("unknown option " + arg);
            } else if (++i == args.length) {
                throw new UsageException(arg + " needs a value");
            } else {
                options.put(arg.substring(2), args[i]);
            }
        }
    }

    /** The only word. */
    String word(String what) {
        if (words.size() != 1) {
            throw new UsageException("expected one " + what + ", got " + words);
        }
        return words.get(0);
    }

    boolean has(String name) {
        return options.containsKey(name);
    }

    String text(String name, String otherwise) {
        return options.getOrDefault(name, otherwise);
    }

    String required(String name) {
        if (!has(name)) {
            throw new UsageException("--" + name + " is missing");
        }
        return options.get(name);
    }

    /** A positive number; k, m and g behind it are powers of 1024. */
    long size(String name, long otherwise) {
        if (!has(name)) {
            return otherwise;
        }
        String value = options.get(name).toLowerCase(Locale.ROOT);
        int shift = 10 * (1 + "kmg".indexOf(value.isEmpty() ? ' ' : value.charAt(value.length() - 1)));
        try {
            String digits = shift == 0 ? value : value.substring(0, value.length() - 1);
            long number = Math.multiplyExact(Long.parseLong(digits), 1L << shift);
            if (number > 0) {
                return number;
            }
        } catch (ArithmeticException | NumberFormatException e) {
            // falls through to the one message
        }
        throw new UsageException("--" + name + " is not a positive size: " + options.get(name));
    }

    int count(String name, int otherwise) {
        long value = size(name, otherwise);
        if (value > Integer.MAX_VALUE) {
            throw new UsageException("--" + name + " is above " + Integer.MAX_VALUE);
        }
        return (int) value;
    }

    long seed(String name, long otherwise) {
        try {
            return has(name) ? Long.parseLong(options.get(name)) : otherwise;
        } catch (NumberFormatException e) {
            throw new UsageException("--" + name + " is not a number: " + options.get(name));
        }
    }
}
