package oracle;

import java.io.IOException;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.SystemClock;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** The store of RocketMQ 5.x; {@code clock}, if not null, gives the store timestamps. */
final class OracleStore extends DefaultMessageStore {
    private final SystemClock clock;

    OracleStore(MessageStoreConfig config, SystemClock clock) throws IOException {
        super(withoutCompaction(config), new BrokerStatsManager("oracle", false),
            (topic, queueId, offset, tagsCode, storeTime, bitMap, properties) -> { },
            new BrokerConfig(), new ConcurrentHashMap<>());
        this.clock = clock;
    }

    /** Compaction topics need a broker; without this the store only leaves an empty compaction/ folder behind. */
    private static MessageStoreConfig withoutCompaction(MessageStoreConfig config) {
        config.setEnableCompaction(false);
        return config;
    }

    @Override
    public SystemClock getSystemClock() {
        return clock == null ? super.getSystemClock() : clock;
    }
}
