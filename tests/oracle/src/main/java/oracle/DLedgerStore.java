package oracle;

import java.net.ServerSocket;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.EnumSet;
import java.util.Set;
import java.util.SplittableRandom;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.dledger.DLedgerCommitLog;

/**
 * The real store with {@code enableDLegerCommitLog}, as a group of one node on loopback: writes a log of entries, by itself or
 * behind an old plain log, or rebuilds what is derived from one.
 */
final class DLedgerStore {
    private static final String USAGE = "usage: DLedgerStore STORE --put MESSAGES [--plain] | --rebuild [--seed N]"
        + " [--segment-size N] [--cq-file-size N] [--hash-slots N] [--index-items N]";
    private static final String NODE = "n0";
    /** Milliseconds, of an election. */
    private static final int PATIENCE = 60_000;
    private static final int INDEX_ENTRY = 32;

    private DLedgerStore() {
    }

    public static void main(String[] argv) {
        Main.run(USAGE, () -> run(new Args(argv,
            Set.of("put", "seed", "segment-size", "cq-file-size", "hash-slots", "index-items"), Set.of("plain", "rebuild"))));
    }

    private static void run(Args args) throws Exception {
        Path root = Path.of(args.word("store folder"));
        if (args.has("put") == args.has("rebuild")) {
            throw new Args.UsageException("either --put MESSAGES or --rebuild");
        }
        MessageStoreConfig config = Settings.of(root, args, 8_192);
        Settings.recoverSegments(config, Integer.MAX_VALUE);
        Settings.set(config, "autoMessageVersionOnTopicLen=true");
        config.setFlushIntervalConsumeQueue(Integer.MAX_VALUE);
        if (!args.has("plain")) {
            config.setEnableDLegerCommitLog(true);
            config.setdLegerGroup("group");
            config.setdLegerSelfId(NODE);
            try (ServerSocket socket = new ServerSocket(0)) {
                config.setdLegerPeers(NODE + "-127.0.0.1:" + socket.getLocalPort());
            }
        }
        OracleStore store = new OracleStore(config, null);
        IndexPatience.of(store, root);
        if (!store.load()) {
            throw new Main.Failure("the store in " + root + " does not load");
        }
        store.start();
        if (!args.has("plain")) {
            lead(store);
        }
        store.recoverTopicQueueTable();
        if (args.has("put")) {
            put(store, args.count("put", 1), args.seed("seed", 1), args.count("segment-size", 8_192));
        }
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(2);
        }
        long entries = args.has("plain") ? 0 : log(store).getdLedgerServer().getdLedgerStore().getLedgerEndIndex() + 1;
        store.shutdown();
        if (Files.exists(root.resolve("abort"))) {
            throw new Main.Failure("the store in " + root + " did not shut down cleanly");
        }
        shorten(root.resolve("dledger-" + NODE).resolve("index"), entries * INDEX_ENTRY);
    }

    private static DLedgerCommitLog log(DefaultMessageStore store) {
        return (DLedgerCommitLog) store.getCommitLog();
    }

    /** Waits until the only node leads its group. */
    private static void lead(DefaultMessageStore store) throws Exception {
        long begin = System.currentTimeMillis();
        while (!log(store).getdLedgerServer().getMemberState().isLeader()) {
            if (System.currentTimeMillis() - begin > PATIENCE) {
                throw new Main.Failure("the node does not become the leader");
            }
            Thread.sleep(10);
        }
    }

    private static void put(OracleStore store, int messages, long seed, int segmentSize) throws Exception {
        Set<Feature> features = EnumSet.of(Feature.BLANKS, Feature.UNICODE, Feature.TAGS, Feature.TRANSACTIONS, Feature.DELAYS,
            Feature.BATCHES, Feature.IPV6);
        if (!Main.version().startsWith("4")) {
            features.add(Feature.LONG_TOPICS);
        }
        Plan plan = new Plan(seed, Main.version(), features, segmentSize, 400, 7, 30, "1s 5s 10s", messages, 3, 2);
        SplittableRandom random = plan.random();
        RandomMessages source = new RandomMessages(plan, random.split(), new ScenarioClock(random.split(), false));
        for (int i = 0; i < messages; i++) {
            PutMessageResult result = random.nextInt(12) == 0
                ? store.putMessages(source.batch()) : store.putMessage(source.next(0, null));
            if (!result.isOk()) {
                throw new Main.Failure("a put ended with " + result.getPutMessageStatus());
            }
        }
    }

    /** A file of DLedger's index has room for five million entries. */
    private static void shorten(Path index, long size) throws Exception {
        for (Path file : Folders.children(index)) {
            try (FileChannel channel = FileChannel.open(file, StandardOpenOption.WRITE)) {
                channel.truncate(size);
            }
        }
    }
}
