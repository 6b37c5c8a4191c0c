package oracle;

import java.io.IOException;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.SystemClock;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** The store of RocketMQ 4.x; {@code clock}, if not null, gives the store timestamps. */
final class OracleStore extends DefaultMessageStore {
    private final SystemClock clock;

    OracleStore(MessageStoreConfig config, SystemClock clock) throws IOException {
        super(config, new BrokerStatsManager("oracle", false),
            (topic, queueId, offset, tagsCode, storeTime, bitMap, properties) -> { }, new BrokerConfig());
        this.clock = clock;
    }

    OracleStore(MessageStoreConfig config, SystemClock clock, boolean group) throws IOException {
        this(config, clock);
        if (group) {
            throw new UnsupportedOperationException("4.x has no controller");
        }
    }

    boolean beMaster(int epoch) {
        throw new UnsupportedOperationException("4.x has no controller");
    }

    boolean beSlave(OracleStore master, int epoch) {
        throw new UnsupportedOperationException("4.x has no controller");
    }

    /** It has none. */
    List<String> epochs() {
        return List.of();
    }

    /** There is no such option in 4.x. */
    static void withRecordCrc(MessageStoreConfig config) {
        throw new UnsupportedOperationException("4.x writes no CRC of a record");
    }

    void forgetTopic(String topic) {
        Set<String> others = new HashSet<>(getConsumeQueueTable().keySet());
        others.remove(topic);
        cleanUnusedTopic(others);
    }

    /** The next message of a queue that has any gets an offset that is {@code by} above (or below) its turn, at least 0. */
    void moveQueue(String topic, int queue, long by) {
        getCommitLog().getTopicQueueTable().computeIfPresent(topic + "-" + queue, (key, next) -> Math.max(0, next + by));
    }

    /** It has no queues in RocksDB. */
    boolean inRocksDB() {
        return false;
    }

    /** It has no such queues as those of RocksDB. */
    boolean holdsUnits() {
        return false;
    }

    /** Its queues have no such offsets. */
    long placeByUnit(String topic, int queue, long at, long none) {
        return -1;
    }

    boolean canTruncate() {
        return false;
    }

    void truncateLog(long offset) {
        throw new UnsupportedOperationException("4.x cuts its log at a start alone");
    }

    @Override
    public SystemClock getSystemClock() {
        return clock == null ? super.getSystemClock() : clock;
    }

    /** 4.x delivers delayed messages from within the store: that would append to a log under test. */
    @Override
    public void handleScheduleMessageService(BrokerRole brokerRole) {
    }
}
