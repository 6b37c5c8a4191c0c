package oracle;

import java.util.EnumSet;
import java.util.Locale;
import java.util.Set;
import java.util.SplittableRandom;
import java.util.stream.Collectors;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * What a seed decides before the first message.
 *
 * @param version of RocketMQ, as in {@code 5.3.3}
 * @param messages puts of the main part; a batch is one put
 * @param indexItems at least 30: a record with more keys and tags than a file has items could open two in one millisecond
 */
record Plan(long seed, String version, Set<Feature> features, int segmentSize, int cqFileSize, int hashSlots,
            int indexItems, String delayLevels, int messages, int topics, int queues) {
    private static final int[] SEGMENT_SIZES = {65_536, 65_536, 70_001, 131_072, 262_144, 1_048_576};
    /** Bytes: few records fill so small a segment. */
    private static final int SMALL_SEGMENT = 32_768;
    private static final int[] CQ_FILE_SIZES = {400, 420, 1_000, 2_000, 4_000, 20_000};
    private static final int[] HASH_SLOTS = {7, 50, 101, 500, 1_000};
    private static final int[] INDEX_ITEMS = {30, 60, 150, 151, 400, 1_000, 5_000};
    private static final String[] DELAY_LEVELS = {
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h", "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        "3s", "1d 2h 3m 4s", "5s 1s"};

    static Plan of(long seed, String version) {
        // Split off: seeds that are near each other else share their numbers.
        SplittableRandom random = new SplittableRandom(seed).split();
        Set<Feature> features = Feature.draw(random, version.startsWith("4"));
        boolean many = features.contains(Feature.MANY_SEGMENTS);
        int segmentSize = pick(random, SEGMENT_SIZES);
        int messages = random.nextInt(4) == 0 ? random.nextInt(1, 40) : random.nextInt(100, 700);
        return new Plan(seed, version, features, many ? SMALL_SEGMENT : segmentSize, pick(random, CQ_FILE_SIZES),
            pick(random, HASH_SLOTS), pick(random, INDEX_ITEMS), DELAY_LEVELS[random.nextInt(DELAY_LEVELS.length)],
            many ? random.nextInt(900, 1_300) : messages, random.nextInt(1, 6), random.nextInt(1, 5));
    }

    private static int pick(SplittableRandom random, int[] from) {
        return from[random.nextInt(from.length)];
    }

    /** The same without some features. */
    Plan without(Set<Feature> leftOut) {
        Set<Feature> rest = EnumSet.copyOf(features);
        rest.removeAll(leftOut);
        return new Plan(seed, version, rest, segmentSize, cqFileSize, hashSlots, indexItems, delayLevels, messages, topics, queues);
    }

    boolean has(Feature feature) {
        return features.contains(feature);
    }

    /** The messages' source of chance: of its own, so that the plan can grow without changing them all. */
    SplittableRandom random() {
        return new SplittableRandom(seed ^ 0x5DEECE66DL).split();
    }

    void configure(MessageStoreConfig config) {
        config.setMappedFileSizeCommitLog(segmentSize);
        config.setMappedFileSizeConsumeQueue(cqFileSize);
        config.setMaxHashSlotNum(hashSlots);
        config.setMaxIndexNum(indexItems);
        config.setMessageDelayLevel(delayLevels);
        if (has(Feature.LMQ)) {
            config.setEnableLmq(true);
            config.setEnableMultiDispatch(true);
        }
    }

    /** What whoever rebuilds the store elsewhere needs to know; {@code ends}: of the log, and before it was truncated, or -1. */
    String json(String failure, long[] ends) {
        String names = features.stream().map(f -> "\"" + f.name().toLowerCase(Locale.ROOT) + "\"").collect(Collectors.joining(", "));
        return String.format(Locale.ROOT, """
            {"seed": %d, "version": "%s", "features": [%s],
             "segment_size": %d, "cq_file_size": %d, "hash_slots": %d, "index_items": %d,
             "delay_levels": "%s", "lmq": %b, "failure": %s,
             "end": %d, "old_end": %d}
            """, seed, version, names, segmentSize, cqFileSize, hashSlots, indexItems, delayLevels, has(Feature.LMQ),
            failure == null ? "null" : "\"" + failure.replaceAll("[^ -~]|[\"\\\\]", "?") + "\"", ends[0], ends[1]);
    }
}
