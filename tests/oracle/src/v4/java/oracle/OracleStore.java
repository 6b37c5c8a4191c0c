package oracle;

import java.io.IOException;
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

    @Override
    public SystemClock getSystemClock() {
        return clock == null ? super.getSystemClock() : clock;
    }

    /** 4.x delivers delayed messages from within the store: that would append to a log under test. */
    @Override
    public void handleScheduleMessageService(BrokerRole brokerRole) {
    }
}
