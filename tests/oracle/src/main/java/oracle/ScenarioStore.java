package oracle;

import java.nio.ByteBuffer;
import java.nio.channels.SeekableByteChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.store.AppendMessageResult;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.PutMessageStatus;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** The real store that a scenario is put into; it can be closed and opened again. */
final class ScenarioStore {
    private final Plan plan;
    private final Path root;
    private final ScenarioClock clock;
    private final boolean index;
    private OracleStore store;
    /** The last record (or batch) put, and the log's end. */
    private long last = -1;
    private long end;

    /** With {@code index} its IndexFiles are made, too. */
    ScenarioStore(Plan plan, Path root, ScenarioClock clock, boolean index) {
        this.plan = plan;
        this.root = root;
        this.clock = clock;
        this.index = index;
    }

    long lastRecord() {
        return last;
    }

    long end() {
        return end;
    }

    void open() throws Exception {
        MessageStoreConfig config = Settings.of(root);
        plan.configure(config);
        config.setMessageIndexEnable(index);
        // It is the real time that this is held against, by a clock that jumps.
        config.setOsPageCacheBusyTimeOutMills(Long.MAX_VALUE);
        if (plan.has(Feature.RECORD_CRC)) {
            OracleStore.withRecordCrc(config);
        }
        store = make(config, clock);
        if (index) {
            IndexPatience.of(store, root);
        }
        if (!store.load()) {
            throw new Main.Failure("the store does not load");
        }
        store.start();
    }

    /** One at a time: each fills a map that all share (StoreStatsService). */
    static synchronized OracleStore make(MessageStoreConfig config, ScenarioClock clock) throws Exception {
        return new OracleStore(config, clock);
    }

    void close() throws Exception {
        dispatched();
        // What the store waits for when it ends, some seconds, nobody needs here.
        Thread.currentThread().interrupt();
        store.shutdown();
        Thread.interrupted();
        if (Files.exists(root.resolve("abort"))) {
            throw new Main.Failure("the store did not shut down cleanly");
        }
    }

    /** Where the store says that its log ends. */
    long logEnd() {
        return store.getMaxPhyOffset();
    }

    /** Whether this version can cut its log while it runs. */
    boolean canTruncate() {
        return store.canTruncate();
    }

    /** As a slave cuts what its master does not have. */
    void truncate(long offset) throws Exception {
        dispatched();
        store.truncateLog(offset);
    }

    /** Whether it was taken: the store refuses what is too long. */
    boolean put(BrokerMessage message) throws Exception {
        return taken(store.putMessage(message));
    }

    boolean put(MessageExtBatch batch) throws Exception {
        return taken(store.putMessages(batch));
    }

    private boolean taken(PutMessageResult result) throws Main.Failure {
        PutMessageStatus status = result.getPutMessageStatus();
        if (status == PutMessageStatus.MESSAGE_ILLEGAL || status == PutMessageStatus.PROPERTIES_SIZE_EXCEEDED) {
            return false;
        }
        if (!result.isOk()) {
            throw new Main.Failure("a put ended with " + status);
        }
        AppendMessageResult appended = result.getAppendMessageResult();
        last = appended.getWroteOffset();
        end = last + appended.getWroteBytes();
        return true;
    }

    /** The bytes of the last record, or of the batch. */
    byte[] lastBytes() throws Exception {
        Path segment = segment(last);
        ByteBuffer bytes = ByteBuffer.allocate(Math.toIntExact(end - last));
        try (SeekableByteChannel channel = Files.newByteChannel(segment)) {
            channel.position(last % plan.segmentSize());
            while (bytes.hasRemaining() && channel.read(bytes) >= 0) {
                continue;
            }
        }
        return bytes.array();
    }

    Path segment(long offset) {
        long base = offset - offset % plan.segmentSize();
        return root.resolve("commitlog").resolve(String.format("%020d", base));
    }

    /** As the broker deletes a topic: its queues go, its records stay. */
    void forget(String topic) throws Exception {
        dispatched();
        store.forgetTopic(topic);
    }

    /** As after records were lost, or a slave became the master. */
    void jump(String topic, int queue, long by) throws Exception {
        dispatched();
        store.moveQueue(topic, queue, by);
    }

    private void dispatched() throws Exception {
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(1);
        }
    }
}
