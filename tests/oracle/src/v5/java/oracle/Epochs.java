package oracle;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.stream.Collectors;
import org.apache.rocketmq.remoting.protocol.EpochEntry;
import org.apache.rocketmq.store.ha.autoswitch.EpochFileCache;

/** Asks a broker's own cache of epochs, for each line of a file of questions, and prints a line for each. */
final class Epochs {
    private Epochs() {
    }

    public static void main(String[] argv) {
        Main.run("usage: Epochs QUESTIONS: lines of tabs: read FILE | write FILE E-S,E-S | same FILE END FILE END", () -> {
            for (String line : Files.readAllLines(Path.of(argv[0]), StandardCharsets.UTF_8)) {
                String[] words = line.split("\t");
                System.out.println(answer(words));
            }
        });
    }

    private static String answer(String[] words) {
        switch (words[0]) {
            case "read":
                EpochFileCache read = new EpochFileCache(words[1]);
                try {
                    return read.initCacheFromFile() + " " + shown(read);
                } catch (RuntimeException thrown) {
                    return thrown.getClass().getSimpleName();
                }
            case "write":
                EpochFileCache written = new EpochFileCache(words[1]);
                for (String entry : words[2].split(",")) {
                    String[] parts = entry.split("-");
                    written.appendEntry(new EpochEntry(Integer.parseInt(parts[0]), Long.parseLong(parts[1])));
                }
                return shown(written);
            default:
                return String.valueOf(cache(words[1], words[2]).findConsistentPoint(cache(words[3], words[4])));
        }
    }

    private static String shown(EpochFileCache cache) {
        return cache.getAllEntries().stream().map(e -> e.getEpoch() + "-" + e.getStartOffset()).collect(Collectors.joining(","));
    }

    /** The cache as AutoSwitchHAClient makes it of both sides, with the end of the log. */
    private static EpochFileCache cache(String file, String end) {
        EpochFileCache read = new EpochFileCache(file);
        read.initCacheFromFile();
        EpochFileCache made = new EpochFileCache();
        made.initCacheFromEntries(read.getAllEntries());
        made.setLastEpochEntryEndOffset(Long.parseLong(end));
        return made;
    }
}
