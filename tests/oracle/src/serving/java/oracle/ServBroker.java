package oracle;

import java.nio.file.Path;
import java.util.List;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** A name server, and a broker that serves a store as it stands; both on free ports of the loopback, in this JVM. */
final class ServBroker {
    private static final String LOOPBACK = "127.0.0.1";

    private final BrokerController broker;
    private final List<String> topics;

    private ServBroker(BrokerController broker) {
        this.broker = broker;
        topics = broker.getTopicConfigManager().getTopicConfigTable().keySet().stream()
            .filter(topic -> !TopicValidator.isSystemTopic(topic)).sorted().toList();
    }

    /** Starts a name server. */
    static NamesrvController nameServer(Path scratch) throws Exception {
        NamesrvConfig config = new NamesrvConfig();
        config.setKvConfigPath(scratch.resolve("kvConfig.json").toString());
        config.setConfigStorePath(scratch.resolve("namesrv.properties").toString());
        NettyServerConfig net = new NettyServerConfig();
        net.setBindAddress(LOOPBACK);
        net.setListenPort(0);
        NamesrvController controller = new NamesrvController(config, net);
        if (!controller.initialize()) {
            throw new Main.Failure("the name server does not initialize");
        }
        controller.start();
        return controller;
    }

    /** Boots a broker on the store in {@code root}. Topics that config/topics.json does not name are not there. */
    static ServBroker boot(String name, Path root, Args args, NamesrvController nameServer) throws Exception {
        BrokerConfig config = new BrokerConfig();
        config.setBrokerName(name);
        config.setBrokerIP1(LOOPBACK);
        config.setBrokerIP2(LOOPBACK);
        config.setNamesrvAddr(address(nameServer));
        config.setBrokerConfigPath(root.resolve("broker.conf").toString());
        config.setAutoCreateTopicEnable(false);
        config.setRocketmqHome(root.toString());
        NettyServerConfig net = new NettyServerConfig();
        net.setBindAddress(LOOPBACK);
        net.setListenPort(0);
        MessageStoreConfig store = Settings.of(root, args, Settings.SEGMENT_SIZE);
        store.setEnableCompaction(false);
        // A broker gives back what was popped and never acknowledged only with it.
        store.setTimerWheelEnable(args.has("timer-wheel"));
        store.setDiskMaxUsedSpaceRatio(99);
        BrokerController broker = new BrokerController(config, net, new NettyClientConfig(), store);
        if (!broker.initialize()) {
            throw new Main.Failure("the broker does not load the store in " + root);
        }
        broker.start();
        // It registers at once, but in vain until its client has looked for the name server, and then only after 10 s.
        long end = System.nanoTime() + 240_000_000_000L;
        ServBroker booted = new ServBroker(broker);
        while (!booted.isKnownTo(nameServer)) {
            if (System.nanoTime() > end) {
                throw new Main.Failure("the broker is not known to the name server");
            }
            Thread.sleep(20);
            broker.registerBrokerAll(true, false, true);
        }
        return booted;
    }

    static String address(NamesrvController nameServer) {
        return LOOPBACK + ":" + nameServer.getNettyServerConfig().getListenPort();
    }

    String address() {
        return broker.getBrokerAddr();
    }

    /** Whether clients are told the way to each topic; the broker's own entry is there before those of its topics. */
    private boolean isKnownTo(NamesrvController nameServer) {
        return topics.stream().allMatch(topic -> nameServer.getRouteInfoManager().pickupTopicRouteData(topic) != null);
    }

    long end() {
        return broker.getMessageStore().getMaxPhyOffset();
    }

    long behind() {
        return broker.getMessageStore().dispatchBehindBytes();
    }

    /** The topics it had a config of when it booted, those that each broker makes for itself left out. */
    List<String> topics() {
        return topics;
    }

    void stop() {
        broker.shutdown();
    }
}
