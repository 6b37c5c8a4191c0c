package oracle;

import java.util.SplittableRandom;

/**
 * A kind of log.
 *
 * @param bodyBytes mean length of a body; single ones differ from it by up to an eighth
 * @param perSecond records a second of store time
 */
record Preset(String topicPrefix, int topics, int queues, int bodyBytes, int perSecond, Keys keys) {

    /** The KEYS of the message with a running number. */
    interface Keys {
        String of(long number, SplittableRandom random);
    }

    static Preset of(String name) {
        return switch (name) {
            // About 1 KiB a record, one key; an order has some four messages, not far from each other.
            case "orders" -> new Preset("orders", 20, 8, 865, 5_000,
                (number, random) -> "order-" + digits(Math.max(0, number / 4 - random.nextInt(256)), 10));
            // About 260 bytes a record, two keys: one that comes again and again and one that is there once.
            case "small" -> new Preset("trade", 20, 8, 83, 50_000,
                (number, random) -> "u" + digits(random.nextInt(1_000_000), 7) + " t" + digits(number, 9));
            // 16 KiB bodies: what costs is bytes, not records.
            case "large" -> new Preset("document", 4, 4, 16_384, 1_000,
                (number, random) -> "doc-" + digits(number, 10));
            default -> throw new Args.UsageException("no such preset: " + name);
        };
    }

    String topic(int number) {
        return topicPrefix + "-" + digits(number, 2);
    }

    private static String digits(long number, int width) {
        String text = Long.toString(number);
        return text.length() >= width ? text : "0".repeat(width - text.length()) + text;
    }
}
