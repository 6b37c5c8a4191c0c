package oracle;

import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.net.BindException;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.constant.PermName;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageStore;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.dledger.DLedgerCommitLog;

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
        NettyServerConfig net = net();
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
        // One of a controller group shares it with the others.
        boolean ofGroup = args.text("name-server", null) != null;
        config.setNamesrvAddr(ofGroup ? args.required("name-server") : address(nameServer));
        config.setAutoCreateTopicEnable(false);
        config.setRocketmqHome(root.toString());
        // TransactionMetricsFlushService turns without a pause until the first interval is over: ten seconds of one core by
        // default.
        Settings.set(config, "transactionMetricFlushInterval=500,brokerConfigPath=" + root.resolve("broker.conf") + ","
            + args.text("set", ""));
        MessageStoreConfig store = Settings.of(root, args, Settings.SEGMENT_SIZE);
        // BrokerStartup tells the ids apart so, too: a slave that has a master's id would pass over what it cannot dispatch.
        config.setBrokerId(store.getBrokerRole() == BrokerRole.SLAVE ? 1 : MixAll.MASTER_ID);
        config.setSlaveReadEnable(true);
        // A broker gives back what was popped and never acknowledged only with timers.
        Settings.set(store, "enableCompaction=false,timerWheelEnable=" + args.has("timer-wheel"));
        store.setDiskMaxUsedSpaceRatio(99);
        BrokerController broker = new BrokerController(config, net(ofGroup), new NettyClientConfig(), store);
        if (!broker.initialize()) {
            throw new Main.Failure("the broker does not load the store in " + root);
        }
        broker.start();
        pauseOpBatches(broker);
        if (store.getBrokerRole() == BrokerRole.SLAVE) {
            // BrokerController.initialize tells it to an HA service that has no client before its start (5.3.3).
            broker.getMessageStore().updateHaMasterAddress(store.getHaMasterAddress());
            for (Method method : MessageStore.class.getMethods()) {
                // 4.9 has no such method: its HA client looks for itself.
                if (method.getName().equals("wakeupHAClient")) {
                    method.invoke(broker.getMessageStore());
                }
            }
        }
        // It registers at once, but in vain until its client has looked for the name server, and then only after 10 s.
        long end = System.nanoTime() + 240_000_000_000L;
        ServBroker booted = new ServBroker(broker);
        while (!ofGroup && !booted.isKnownTo(nameServer)) {
            if (System.nanoTime() > end) {
                throw new Main.Failure("the broker is not known to the name server");
            }
            Thread.sleep(20);
            broker.registerBrokerAll(true, false, true);
        }
        return booted;
    }

    /**
     * TransactionalOpBatchService turns without a pause while nothing has been written for an interval, since it waits until
     * the last write and that interval are over. Idle queues of op messages get a last write that lets it wait for 20 ms.
     */
    private static void pauseOpBatches(BrokerController broker) throws ReflectiveOperationException {
        Object service = broker.getTransactionalMessageService();
        Field field;
        try {
            field = service.getClass().getDeclaredField("deleteContext");
        } catch (NoSuchFieldException e) {
            // 4.9 writes each op message at once.
            return;
        }
        field.setAccessible(true);
        Map<?, ?> contexts = (Map<?, ?>) field.get(service);
        int interval = (int) BrokerConfig.class.getMethod("getTransactionOpBatchInterval").invoke(broker.getBrokerConfig());
        Thread pauses = new Thread(() -> {
            try {
                while (true) {
                    Thread.sleep(10);
                    for (Object context : contexts.values()) {
                        Class<?> kind = context.getClass();
                        if (((AtomicInteger) kind.getMethod("getTotalSize").invoke(context)).get() <= 0) {
                            kind.getMethod("setLastWriteTimestamp", long.class)
                                .invoke(context, System.currentTimeMillis() - interval + 20);
                        }
                    }
                }
            } catch (InterruptedException | ReflectiveOperationException e) {
                e.printStackTrace();
            }
        });
        pauses.setDaemon(true);
        pauses.start();
    }

    private static NettyServerConfig net() throws IOException {
        return net(false);
    }

    /** The address of a broker in a controller group is asked for before the port is open (ReplicasManager). */
    private static NettyServerConfig net(boolean fixed) throws IOException {
        NettyServerConfig net = new NettyServerConfig();
        Settings.set(net, "bindAddress=" + LOOPBACK);
        net.setListenPort(fixed || Main.version().startsWith("4.") ? freePort() : 0);
        return net;
    }

    /** A broker of 4.x tells others the port that its settings have, and takes a second one, two below it. */
    private static int freePort() throws IOException {
        while (true) {
            try (ServerSocket one = new ServerSocket(0); ServerSocket other = new ServerSocket()) {
                other.bind(new InetSocketAddress(one.getLocalPort() - 2));
                return one.getLocalPort();
            } catch (BindException e) {
                continue;
            }
        }
    }

    static String address(NamesrvController nameServer) {
        return LOOPBACK + ":" + nameServer.getNettyServerConfig().getListenPort();
    }

    String address() {
        return broker.getBrokerAddr();
    }

    /** Whether clients are told the way to each topic; the broker's own entry is there before those of its topics. */
    private boolean isKnownTo(NamesrvController nameServer) {
        String name = broker.getBrokerConfig().getBrokerName();
        return topics.stream().map(topic -> nameServer.getRouteInfoManager().pickupTopicRouteData(topic)).allMatch(route ->
            route != null && route.getQueueDatas().stream().anyMatch(queues -> queues.getBrokerName().equals(name)));
    }

    long end() {
        return broker.getMessageStore().getMaxPhyOffset();
    }

    long behind() {
        return broker.getMessageStore().dispatchBehindBytes();
    }

    /** Whether it leads its group of DLedger, and its name server tells clients so. */
    boolean leads(NamesrvController nameServer) {
        DLedgerCommitLog log = (DLedgerCommitLog) ((DefaultMessageStore) broker.getMessageStore()).getCommitLog();
        // BrokerController.changeToMaster says so to its name server after it has taken the role.
        return log.getdLedgerServer().getMemberState().isLeader() && broker.getMessageStoreConfig().getBrokerRole() == BrokerRole.SYNC_MASTER
            && topics.stream().allMatch(topic -> nameServer.getRouteInfoManager().pickupTopicRouteData(topic).getBrokerDatas().stream()
                .allMatch(data -> broker.getBrokerAddr().equals(data.getBrokerAddrs().get(MixAll.MASTER_ID))));
    }

    boolean isSlave() {
        return broker.getMessageStoreConfig().getBrokerRole() == BrokerRole.SLAVE;
    }

    /** Where slaves ask it for its log. */
    int haPort() {
        return broker.getMessageStoreConfig().getHaListenPort();
    }

    String nameServer() {
        return broker.getBrokerConfig().getNamesrvAddr();
    }

    /** The topics it had a config of when it booted, those that each broker makes for itself left out. */
    List<String> topics() {
        return topics;
    }

    /** Tells the name server of its topics, as it does each half minute. */
    void register() {
        broker.registerBrokerAll(true, false, true);
    }

    /** From now on it takes no message from clients, as an operator has it who empties a broker. */
    void takeNothing() {
        broker.getBrokerConfig().setBrokerPermission(PermName.PERM_READ);
        broker.registerBrokerAll(true, false, true);
    }

    /** Has a group at an offset, as a consumer that says so; topic and group are made as an admin makes them. */
    void commit(String group, String topic, int queue, long offset) {
        TopicConfig made = new TopicConfig(topic);
        made.setReadQueueNums(3);
        broker.getTopicConfigManager().updateTopicConfig(made);
        var asked = broker.getSubscriptionGroupManager().findSubscriptionGroupConfig(group);
        asked.setRetryMaxTimes(5);
        broker.getSubscriptionGroupManager().updateSubscriptionGroupConfig(asked);
        broker.getConsumerOffsetManager().commitOffset("test", group, topic, queue, offset);
    }

    /** Writes into a folder what the broker knows, as it writes its files of JSON; and all that it keeps to its own place. */
    void writeConfig(Path folder) throws IOException {
        Files.createDirectories(folder);
        Files.writeString(folder.resolve("topics.json"), broker.getTopicConfigManager().encode());
        Files.writeString(folder.resolve("subscriptionGroup.json"), broker.getSubscriptionGroupManager().encode());
        Files.writeString(folder.resolve("consumerOffset.json"), broker.getConsumerOffsetManager().encode());
        broker.getTopicConfigManager().persist();
        broker.getSubscriptionGroupManager().persist();
        broker.getConsumerOffsetManager().persist();
    }

    void stop() {
        broker.shutdown();
    }
}
