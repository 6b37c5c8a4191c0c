package oracle;

import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;
import java.util.SplittableRandom;

/**
 * A store whose log was truncated, once or more often, and written on: behind its end lies what the truncation left.
 * CommitLog.recoverNormally, recoverAbnormally and DefaultMessageStore.truncateDirtyFiles all end in
 * MappedFileQueue.truncateDirtyFiles, which moves the write position and zeroes nothing.
 */
final class StaleRun {
    /** What the files of a log are spared here, and clocks and queue offsets that jump by themselves. */
    private static final Set<Feature> LEFT_OUT = EnumSet.of(Feature.CLOCK, Feature.TORN, Feature.SPARE_SEGMENT,
        Feature.SHORT_SEGMENT, Feature.TRIMMED, Feature.FULL_INDEX, Feature.GAPS, Feature.RESTARTS, Feature.RECORD_CRC);
    /** Milliseconds that no broker needs less for to die and start. */
    private static final int DOWN = 1_000;

    private final Plan plan;
    private final Path root;
    private final SplittableRandom random;
    private final ScenarioClock clock;
    private final RandomMessages messages;
    private final ScenarioStore store;
    /** Where each record, or batch, begins that lies in the log. */
    private final List<Long> places = new ArrayList<>();
    private long oldEnd;

    private StaleRun(Plan plan, Path root) {
        this.plan = plan;
        this.root = root;
        random = plan.random();
        clock = new ScenarioClock(random.split(), false);
        messages = new RandomMessages(plan, random.split(), clock);
        store = new ScenarioStore(plan, root, clock, true);
    }

    static Plan plan(Plan plan) {
        return plan.without(LEFT_OUT);
    }

    /** Leaves the store as it was closed, and {@code rebuilt/}; returns the log's end, and where it ended before. */
    static long[] run(Plan plan, Path root) throws Exception {
        StaleRun run = new StaleRun(plan, root);
        run.run();
        return new long[] {run.store.end(), run.oldEnd};
    }

    private void run() throws Exception {
        store.open();
        put(plan.messages());
        for (int i = random.nextInt(1, 3); i > 0 && places.size() > 1; i--) {
            oldEnd = Math.max(oldEnd, store.end());
            boolean live = random.nextInt(3) == 0 && store.canTruncate();
            int kept = keptRecords(live);
            int gone = places.size() - kept;
            if (live) {
                store.truncate(places.get(kept));
            } else {
                crash(places.get(kept), kept + 1 < places.size() ? places.get(kept + 1) : store.end());
            }
            places.subList(kept, places.size()).clear();
            clock.pass(DOWN);
            put(random.nextInt(1, Math.max(2, gone)));
        }
        store.close();
        Path rebuilt = root.resolve("rebuilt");
        Files.createDirectories(rebuilt);
        // Copies: the store deletes segments behind damage.
        Folders.takeCommitlog(root, rebuilt, true);
        BareRebuild.run(plan, rebuilt);
        Folders.delete(rebuilt.resolve("commitlog"));
    }

    /** How many records stay: some of the last segment go. A broker at work may cut deeper; a start looks no further back. */
    private int keptRecords(boolean live) {
        long base = store.end() - store.end() % plan.segmentSize();
        int first = 0;
        while (first < places.size() - 1 && places.get(first) < base) {
            first++;
        }
        int lowest = live && random.nextInt(3) == 0 ? first / 2 : first;
        return random.nextInt(Math.min(lowest, places.size() - 1), places.size());
    }

    /** The record at {@code at}, which ends at {@code end} or before, is lost with all that follows it. */
    private void crash(long at, long end) throws Exception {
        store.close();
        spoil(at, end);
        if (random.nextBoolean()) {
            // As the broker leaves it when it is killed: CommitLog.recoverAbnormally.
            Files.createFile(root.resolve("abort"));
        }
        store.open();
        if (store.logEnd() != at) {
            throw new Main.Failure("the store cut its log at " + store.logEnd() + ", not at " + at);
        }
    }

    private void spoil(long at, long end) throws Exception {
        int length = (int) Math.min(end - at, plan.segmentSize() - at % plan.segmentSize());
        // The record's head never reached the disk, or all of it.
        int zeros = random.nextBoolean() ? length : Math.min(length, random.nextInt(8, 88));
        try (FileChannel channel = FileChannel.open(store.segment(at), StandardOpenOption.WRITE)) {
            channel.write(ByteBuffer.allocate(zeros), at % plan.segmentSize());
        }
    }

    private void put(int count) throws Exception {
        for (int i = 0; i < count; i++) {
            clock.tick();
            boolean small = store.lastRecord() >= 0 && store.end() - store.lastRecord() < 3_000 && i > 0;
            boolean nested = plan.has(Feature.RECORD_BODIES) && small;
            boolean taken = plan.has(Feature.BATCHES) && random.nextInt(10) == 0 ? store.put(messages.batch())
                : store.put(messages.next(store.end(), nested ? store.lastBytes() : null));
            if (taken) {
                places.add(store.lastRecord());
            }
            if (plan.has(Feature.REMADE_TOPICS) && random.nextInt(120) == 0) {
                store.forget(messages.topic());
            }
        }
    }
}
