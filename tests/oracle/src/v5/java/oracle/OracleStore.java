package oracle;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.SystemClock;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.body.TopicConfigSerializeWrapper;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;
import org.apache.rocketmq.store.queue.ConsumeQueueStoreInterface;
import org.apache.rocketmq.store.queue.RocksDBConsumeQueueStore;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** The store of RocketMQ 5.x; {@code clock}, if not null, gives the store timestamps. */
final class OracleStore extends DefaultMessageStore {
    private final SystemClock clock;

    OracleStore(MessageStoreConfig config, SystemClock clock) throws IOException {
        super(withoutCompaction(config), new BrokerStatsManager("oracle", false),
            (topic, queueId, offset, tagsCode, storeTime, bitMap, properties) -> { },
            new BrokerConfig(), topics(Path.of(config.getStorePathRootDir(), "config", "topics.json")));
        this.clock = clock;
    }

    /** What RocksDBMessageStore has in the place of files; its other parts are other times of the same work. */
    @Override
    public ConsumeQueueStoreInterface createConsumeQueueStore() {
        return getMessageStoreConfig().isEnableRocksDBStore() ? new RocksDBConsumeQueueStore(this) : super.createConsumeQueueStore();
    }

    @Override
    public ConsumeQueueInterface getConsumeQueue(String topic, int queueId) {
        return getMessageStoreConfig().isEnableRocksDBStore() ? findConsumeQueue(topic, queueId) : super.getConsumeQueue(topic, queueId);
    }

    /** Compaction topics need a broker; without this the store only leaves an empty compaction/ folder behind. */
    private static MessageStoreConfig withoutCompaction(MessageStoreConfig config) {
        config.setEnableCompaction(false);
        return config;
    }

    /** As a broker reads its config/topics.json: some topics may have batch ConsumeQueues. None where there is no such file. */
    static ConcurrentMap<String, TopicConfig> topics(Path file) throws IOException {
        return Files.exists(file)
            ? RemotingSerializable.fromJson(Files.readString(file), TopicConfigSerializeWrapper.class).getTopicConfigTable()
            : new ConcurrentHashMap<>();
    }

    /** Lets the store add a CRC over the whole record to its properties. */
    static void withRecordCrc(MessageStoreConfig config) {
        config.setEnabledAppendPropCRC(true);
    }

    void forgetTopic(String topic) {
        // These statistics are a broker's.
        getBrokerConfig().setAutoDeleteUnusedStats(false);
        deleteTopics(Set.of(topic));
    }

    /** The next message of a queue that has any gets an offset that is {@code by} above (or below) its turn, at least 0. */
    void moveQueue(String topic, int queue, long by) throws Exception {
        long next = getQueueStore().getMaxOffset(topic, queue);
        if (next > 0) {
            BrokerMessage message = new BrokerMessage();
            message.setTopic(topic);
            message.setQueueId(queue);
            getQueueStore().increaseQueueOffset(message, (short) Math.max(-next, by));
        }
    }

    boolean canTruncate() {
        return true;
    }

    /** As AutoSwitchHAService calls it. */
    void truncateLog(long offset) throws Exception {
        truncateDirtyFiles(offset);
    }

    @Override
    public SystemClock getSystemClock() {
        return clock == null ? super.getSystemClock() : clock;
    }
}
