package oracle;

import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;

/** Topics, keys, tags and whole property strings. */
final class Words {
    private static final String NAME = "\u0001";
    private static final String END = "\u0002";
    private static final String[] TOPICS = {"orders", "TopicA", "TopicB", "%RETRY%group-1", "%DLQ%g_1", "rmq_sys_x", "a-0"};
    private static final String[] COLLIDING_TOPICS = {"tAa", "tBB"};
    private static final String[] UNICODE_TOPICS = {"Тема", "订单", "t😀"};
    private static final String[] LONG_TOPICS = {
        "L".repeat(128), "M".repeat(200), "N".repeat(255), "é".repeat(120) + "e".repeat(12), "O".repeat(127), "%RETRY%" + "r".repeat(200)};
    private static final String[] COLLIDING = {"Aa", "BB", "AaAa", "BBBB", "AaBB", "BBAa"};
    private static final String[] UNICODE = {
        "ключ", "键", "😀", "a😀b", "\u0000", "k\u0000z", "é", "e\u0301", "\u200b", "\u00a0", "\uffff", "\ud800", "Ǆ", "\u3000x"};
    private static final String[] BLANKS = {" ", "  ", "   ", "\t", " \t", "\n", " \u00a0 "};
    private static final String[] TAGS = {"TagA", "TagB", "BB", "Aa", "polygenelubricants", "a||b", "*", " ", "t t", "#", "T#TagA",
        "long".repeat(90)};
    private static final String[] LEVELS = {
        "1", "2", "3", "18", "19", "0", "-1", "+5", "007", "2147483647", "-2147483648", "٣", "\uff15"};
    private static final String[] LMQS = {"%LMQ%one", "%LMQ%two", "%LMQ%😀", "%LMQ%/slash", "%LMQ%", "plain"};
    private static final String[] RAW = {
        "", "KEYS\1a b", "\1\2", "KEYS\1\2", "KEYS\1a\2KEYS\1b\2", "K\2", "k\1v", "KEYS", "\2\2KEYS\1k\2\2",
        "a\1\2TAGS\1t", "\1v\2KEYS\1\1\2", "TAGS\1\1\2", "UNIQ_KEY\1u\1\1v\2KEYS\1x\1y z\2", "UNIQ_KEY\1a b\2KEYS\1 \2",
        "KEYS\1k", "KEYS\1k\2TAGS", "TAGS\1t\2TAGS\1\2", "DELAY\1nonsense\2", "INNER_BASE\0017\2", "UNIQ_KEY\1\2KEYS\1k\2",
        "KEYS\1a\0b\2", "keys\1a\2tags\1b\2", "KEYS\1 a\2UNIQ_KEY\1u", "\2", "\1", "a\1b\1c\2KEYS\1k\1l"};
    private static final String[] RAW_LMQ = {
        "INNER_MULTI_DISPATCH\1%LMQ%one,%LMQ%two\2INNER_MULTI_QUEUE_OFFSET\0010,5\2",
        "INNER_MULTI_DISPATCH\1%LMQ%one,%LMQ%one\2INNER_MULTI_QUEUE_OFFSET\0013,3\2",
        "INNER_MULTI_DISPATCH\1%LMQ%one\2INNER_MULTI_QUEUE_OFFSET\0011,2\2", "INNER_MULTI_DISPATCH\1%LMQ%one\2",
        "INNER_MULTI_DISPATCH\1 \2INNER_MULTI_QUEUE_OFFSET\0010\2", "INNER_MULTI_DISPATCH\1%LMQ%a/b,%LMQ%three\2INNER_MULTI_QUEUE_OFFSET\0010,0\2",
        "INNER_MULTI_DISPATCH\1%LMQ%three,\2INNER_MULTI_QUEUE_OFFSET\0017\2", "INNER_MULTI_QUEUE_OFFSET\0010\2",
        "INNER_MULTI_DISPATCH\1plain,%LMQ%one\2INNER_MULTI_QUEUE_OFFSET\0014,2\2"};

    private final Plan plan;
    private final SplittableRandom random;
    private final List<String> topics = new ArrayList<>();

    Words(Plan plan, SplittableRandom random) {
        this.plan = plan;
        this.random = random;
        for (int i = 0; i < plan.topics(); i++) {
            topics.add(pick(TOPICS));
        }
        if (plan.has(Feature.COLLISIONS)) {
            topics.addAll(List.of(COLLIDING_TOPICS));
        }
        if (plan.has(Feature.UNICODE)) {
            topics.add(pick(UNICODE_TOPICS));
        }
        if (plan.has(Feature.LONG_TOPICS)) {
            topics.add(pick(LONG_TOPICS));
            topics.add(pick(LONG_TOPICS));
        }
    }

    String topic() {
        return topics.get(random.nextInt(topics.size()));
    }

    /** UNIQ_KEY, KEYS, TAGS and others in any order, as {@code MessageDecoder.messageProperties2String} would put them. */
    String properties() {
        if (plan.has(Feature.RAW_PROPERTIES) && random.nextInt(6) == 0) {
            return noSlash(pick(plan.has(Feature.LMQ) && random.nextBoolean() ? RAW_LMQ : RAW));
        }
        List<String> pairs = new ArrayList<>();
        if (!plan.has(Feature.KEYLESS)) {
            if (random.nextInt(5) != 0) {
                add(pairs, "UNIQ_KEY", Long.toHexString(random.nextLong()).toUpperCase());
            }
            add(pairs, "KEYS", keys());
        }
        if (plan.has(Feature.TAGS) && random.nextInt(3) != 0) {
            add(pairs, "TAGS", plan.has(Feature.UNICODE) && random.nextInt(4) == 0 ? pick(UNICODE) : pick(TAGS));
        }
        if (random.nextInt(3) == 0) {
            add(pairs, "WAIT", "true");
        }
        if (random.nextInt(4) == 0) {
            add(pairs, "own", "v".repeat(random.nextInt(60)));
        }
        shuffle(pairs);
        String text = String.join("", pairs);
        boolean open = !text.isEmpty() && (plan.version().startsWith("4") || random.nextInt(8) == 0);
        return open ? text.substring(0, text.length() - 1) : text;
    }

    /** A delay level, at the end: it wins over any before it. */
    String delayed(String properties) {
        String open = properties.isEmpty() || properties.endsWith(END) ? properties : properties + END;
        return open + "DELAY" + NAME + pick(LEVELS) + END + "REAL_TOPIC" + NAME + topic() + END + "REAL_QID" + NAME + "0" + END;
    }

    /** Names for INNER_MULTI_DISPATCH. */
    String lightQueues() {
        List<String> names = new ArrayList<>();
        for (int i = random.nextInt(1, 4); i > 0; i--) {
            // A name of another kind has no offset in 5.x, and the dispatcher of 5.3.3 never gets past that record.
            boolean any = plan.version().startsWith("4");
            names.add(any && random.nextInt(12) == 0 ? topic() : LMQS[random.nextInt(LMQS.length - (any ? 0 : 1))]);
        }
        return noSlash(String.join(",", names));
    }

    /** 5.x skips a queue with such a name; 4.x would make folders of it, wherever it leads, and a rebuild does not. */
    private String noSlash(String text) {
        return plan.version().startsWith("4") ? text.replace('/', '-') : text;
    }

    String keys() {
        int count = random.nextInt(9) * random.nextInt(2) + random.nextInt(2);
        StringBuilder text = new StringBuilder(plan.has(Feature.BLANKS) && random.nextInt(4) == 0 ? pick(BLANKS) : "");
        for (int i = 0; i < count; i++) {
            text.append(key()).append(plan.has(Feature.BLANKS) && random.nextInt(3) == 0 ? pick(BLANKS) : " ");
        }
        return plan.has(Feature.BLANKS) || text.isEmpty() ? text.toString() : text.substring(0, text.length() - 1);
    }

    private String key() {
        if (plan.has(Feature.COLLISIONS) && random.nextInt(4) == 0) {
            return pick(COLLIDING);
        }
        if (plan.has(Feature.UNICODE) && random.nextInt(4) == 0) {
            return pick(UNICODE);
        }
        if (plan.has(Feature.TAGS) && random.nextInt(30) == 0) {
            // Since 5.4 a record with these TAGS has this item, too.
            return "T#" + pick(TAGS).trim();
        }
        String key = "key-" + random.nextInt(80);
        return random.nextInt(60) == 0 ? key.repeat(random.nextInt(20, 60)) : key;
    }

    private static void add(List<String> pairs, String name, String value) {
        if (!value.isEmpty()) {
            pairs.add(name + NAME + value + END);
        }
    }

    private void shuffle(List<String> list) {
        for (int i = list.size() - 1; i > 0; i--) {
            list.add(list.remove(random.nextInt(i + 1)));
        }
    }

    private String pick(String[] from) {
        return from[random.nextInt(from.length)];
    }
}
