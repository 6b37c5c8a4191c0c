package oracle;

import java.io.IOException;
import java.lang.reflect.Field;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collection;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.SystemClock;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.body.TopicConfigSerializeWrapper;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAService;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;
import org.apache.rocketmq.store.queue.ConsumeQueueStoreInterface;
import org.apache.rocketmq.store.queue.CqUnit;
import org.apache.rocketmq.store.queue.RocksDBConsumeQueueStore;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** The store of RocketMQ 5.x; {@code clock}, if not null, gives the store timestamps. */
final class OracleStore extends DefaultMessageStore {
    private final SystemClock clock;

    OracleStore(MessageStoreConfig config, SystemClock clock) throws IOException {
        this(config, clock, false);
    }

    /** With {@code group} it is one of a controller group (enableControllerMode), and has no role yet: see ReplicasManager. */
    OracleStore(MessageStoreConfig config, SystemClock clock, boolean group) throws IOException {
        super(withoutCompaction(config), new BrokerStatsManager("oracle", false),
            (topic, queueId, offset, tagsCode, storeTime, bitMap, properties) -> { },
            brokerConfig(group), topics(Path.of(config.getStorePathRootDir(), "config", "topics.json")));
        this.clock = clock;
        if (group) {
            getRunningFlags().makeFenced(true);
        }
    }

    private static BrokerConfig brokerConfig(boolean group) {
        BrokerConfig config = new BrokerConfig();
        config.setEnableControllerMode(group);
        return config;
    }

    /** As ReplicasManager.changeToMaster of a broker that has no role yet; alone in its SyncStateSet. */
    boolean beMaster(int epoch) throws Exception {
        AutoSwitchHAService service = (AutoSwitchHAService) getHaService();
        service.setLocalBrokerId(1L);
        service.setSyncStateSet(Set.of(1L));
        boolean changed = service.changeToMaster(epoch);
        getMessageStoreConfig().setBrokerRole(BrokerRole.SYNC_MASTER);
        getRunningFlags().makeFenced(false);
        return changed;
    }

    /** As ReplicasManager.changeToSlave. */
    boolean beSlave(OracleStore master, int epoch) {
        AutoSwitchHAService service = (AutoSwitchHAService) getHaService();
        service.setLocalBrokerId(2L);
        getMessageStoreConfig().setBrokerRole(BrokerRole.SLAVE);
        boolean changed = service.changeToSlave("", epoch, 2L);
        service.updateHaMasterAddress("127.0.0.1:" + master.getMessageStoreConfig().getHaListenPort());
        getRunningFlags().makeFenced(false);
        return changed;
    }

    /** Its epochs, each as epoch-startOffset. */
    List<String> epochs() {
        return ((AutoSwitchHAService) getHaService()).getEpochEntries().stream()
            .map(entry -> entry.getEpoch() + "-" + entry.getStartOffset()).toList();
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

    /** Whether it keeps queues in RocksDB, too. */
    boolean inRocksDB() {
        return getMessageStoreConfig().isEnableRocksDBStore() || getMessageStoreConfig().isRocksdbCQDoubleWriteEnable();
    }

    /** Whether there are units that RocksGroupCommitService has not put yet. */
    boolean holdsUnits() {
        ConsumeQueueStoreInterface queues = getQueueStore();
        if (queues.getClass().getSimpleName().equals("CombineConsumeQueueStore")) {
            queues = (ConsumeQueueStoreInterface) field(queues, "rocksDBConsumeQueueStore");
        }
        if (!(queues instanceof RocksDBConsumeQueueStore)) {
            return false;
        }
        Object service = field(queues, "groupCommitService");
        for (String one : List.of("buffer", "requests", "buffer", "requests")) {
            if (!((Collection<?>) field(service, one)).isEmpty()) {
                return true;
            }
        }
        return false;
    }

    /** Where the message lies to which a unit leads, by its own word; -1 where there is none, {@code none} without a unit. */
    long placeByUnit(String topic, int queue, long at, long none) {
        CqUnit unit = getConsumeQueue(topic, queue).get(at);
        SelectMappedBufferResult found = unit == null ? null : getCommitLog().getMessage(unit.getPos(), unit.getSize());
        if (found == null) {
            return unit == null ? none : -1;
        }
        try {
            return found.getByteBuffer().getLong(MessageDecoder.MESSAGE_PHYSIC_OFFSET_POSITION);
        } finally {
            found.release();
        }
    }

    private static Object field(Object owner, String name) {
        try {
            Field field = owner.getClass().getDeclaredField(name);
            field.setAccessible(true);
            return field.get(owner);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
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
