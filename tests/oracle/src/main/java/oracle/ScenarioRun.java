package oracle;

import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;
import java.util.SplittableRandom;

/** One scenario: its messages, what happens to its files, and the real store's rebuild of them. */
final class ScenarioRun {
    /**
     * What a store as it was closed does without: damage to files, clocks and queue offsets that jump by themselves, and
     * property strings with offsets of light queues that no broker gave.
     */
    private static final Set<Feature> NOT_CLOSED = EnumSet.of(Feature.CLOCK, Feature.FULL_INDEX, Feature.TRIMMED, Feature.GAPS,
        Feature.TORN, Feature.SPARE_SEGMENT, Feature.SHORT_SEGMENT, Feature.RAW_PROPERTIES);

    private final Plan plan;
    private final Path root;
    private final SplittableRandom random;
    private final ScenarioClock clock;
    private final RandomMessages messages;
    private final ScenarioStore store;

    private ScenarioRun(Plan plan, Path root, boolean index) {
        this.plan = plan;
        this.root = root;
        random = plan.random();
        clock = new ScenarioClock(random.split(), plan.has(Feature.CLOCK));
        messages = new RandomMessages(plan, random.split(), clock);
        store = new ScenarioStore(plan, root, clock, index);
    }

    /** Leaves {@code commitlog/} and {@code rebuilt/} in {@code root}. */
    static void run(Plan plan, Path root) throws Exception {
        new ScenarioRun(plan, root, false).run();
    }

    static Plan closedPlan(Plan plan) {
        Plan closed = plan.without(NOT_CLOSED);
        // In 4.x a light queue of a scenario may have a plain topic's name, and offsets that are not that topic's.
        return plan.version().startsWith("4") ? closed.without(EnumSet.of(Feature.LMQ)) : closed;
    }

    /** Leaves the store as the broker closed it, with its own queues, index and checkpoint. */
    static void close(Plan plan, Path root) throws Exception {
        new ScenarioRun(plan, root, true).putAll();
    }

    private void putAll() throws Exception {
        store.open();
        for (int i = 0; i < plan.messages(); i++) {
            if (plan.has(Feature.RESTARTS) && random.nextInt(250) == 0) {
                store.close();
                store.open();
            }
            if (plan.has(Feature.REMADE_TOPICS) && random.nextInt(120) == 0) {
                store.forget(messages.topic());
            }
            if (plan.has(Feature.GAPS) && random.nextInt(60) == 0) {
                store.jump(messages.topic(), messages.queue(), random.nextInt(5) == 0 ? -random.nextInt(9) : random.nextInt(1, 60));
            }
            // A torn body that holds a whole record at its true place would pass for damage with a good record behind it.
            put(plan.has(Feature.RECORD_BODIES) && !(plan.has(Feature.TORN) && i == plan.messages() - 1));
        }
        store.close();
    }

    private void run() throws Exception {
        putAll();
        Path rebuilt = root.resolve("rebuilt");
        if (plan.has(Feature.FULL_INDEX)) {
            rebuild(rebuilt);
            fillIndex(rebuilt);
            Folders.delete(rebuilt);
        }
        Folders.keepOnlyCommitlog(root);
        spoilFiles();
        rebuild(rebuilt);
        Folders.delete(rebuilt.resolve("commitlog"));
        if (plan.has(Feature.SHORT_SEGMENT) && store.end() % plan.segmentSize() > 0) {
            // Of a file of its own: the rebuild's was a link to it.
            cut(store.segment(store.end()), store.end() % plan.segmentSize() + random.nextInt(40));
        }
    }

    private void put(boolean nested) throws Exception {
        clock.tick();
        if (plan.has(Feature.BATCHES) && random.nextInt(10) == 0) {
            store.put(messages.batch());
            return;
        }
        boolean small = store.lastRecord() >= 0 && store.end() - store.lastRecord() < 3_000;
        store.put(messages.next(store.end(), nested && small ? store.lastBytes() : null));
    }

    /** Puts as many keys as the last index file has room for, or one more or less, and perhaps a record without any. */
    private void fillIndex(Path rebuilt) throws Exception {
        List<Path> files = Folders.children(rebuilt.resolve("index"));
        ByteBuffer header = ByteBuffer.wrap(Files.readAllBytes(files.get(files.size() - 1)), 36, 4);
        int room = plan.indexItems() - Math.max(1, header.getInt()) + (random.nextInt(3) == 0 ? random.nextInt(-1, 2) : 0);
        store.open();
        while (room > 0) {
            int keys = Math.min(room, random.nextInt(1, 9));
            clock.tick();
            store.put(messages.keyed(keys));
            room -= keys;
        }
        if (random.nextInt(3) == 0) {
            clock.tick();
            store.put(messages.keyed(0));
        }
        store.close();
    }

    /** What happens to the files of a commitlog. */
    private void spoilFiles() throws Exception {
        List<Path> segments = Folders.children(root.resolve("commitlog"));
        long base = store.end() - store.end() % plan.segmentSize();
        for (Path segment : segments) {
            // The store makes the next segments in the background: whether it came to that is no matter of the seed.
            if (Long.parseLong(segment.getFileName().toString()) > base) {
                Files.delete(segment);
            }
        }
        if (plan.has(Feature.SPARE_SEGMENT)) {
            for (int i = 1; i <= random.nextInt(1, 3); i++) {
                cut(store.segment(base + (long) i * plan.segmentSize()), plan.segmentSize());
            }
        }
        if (plan.has(Feature.TORN) && store.lastRecord() >= 0) {
            int length = Math.toIntExact(store.end() - store.lastRecord());
            int kept = random.nextInt(length);
            write(store.segment(store.lastRecord()), store.lastRecord() % plan.segmentSize() + kept, new byte[length - kept]);
        }
        if (plan.has(Feature.TRIMMED)) {
            segments = Folders.children(root.resolve("commitlog"));
            long filled = segments.stream().filter(s -> Long.parseLong(s.getFileName().toString()) < store.end()).count();
            for (int i = random.nextInt((int) Math.max(1, filled)); i > 0; i--) {
                Files.delete(segments.get(i - 1));
            }
        }
    }

    private void rebuild(Path rebuilt) throws Exception {
        Files.createDirectories(rebuilt);
        // Copies: where a log is torn, the store zeroes or cuts what lies behind.
        Folders.takeCommitlog(root, rebuilt, true);
        BareRebuild.run(plan, rebuilt);
    }

    private static void cut(Path file, long size) throws Exception {
        try (FileChannel channel = FileChannel.open(file, StandardOpenOption.CREATE, StandardOpenOption.WRITE)) {
            if (channel.size() > size) {
                channel.truncate(size);
            } else if (channel.size() < size) {
                channel.write(ByteBuffer.wrap(new byte[1]), size - 1);
            }
        }
    }

    private static void write(Path file, long at, byte[] bytes) throws Exception {
        try (FileChannel channel = FileChannel.open(file, StandardOpenOption.WRITE)) {
            channel.write(ByteBuffer.wrap(bytes), at);
        }
    }
}
