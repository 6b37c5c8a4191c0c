package oracle;

import io.openmessaging.storage.dledger.DLedgerConfig;
import io.openmessaging.storage.dledger.DLedgerServer;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.Collectors;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.store.CommitLogDispatcher;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.dledger.DLedgerCommitLog;

/** Starts stores as they stand, under any settings, and tells what came of it: of the log, of what was dispatched, of each queue. */
final class Start {
    private static final int PHYSICAL_OFFSET = 28;
    /** A store that dispatches nothing for so long will not get further. */
    private static final long STALL = TimeUnit.SECONDS.toNanos(4);
    private static final long ELECTED = TimeUnit.SECONDS.toNanos(30);
    /** Messages that a consumer asks for at a time (DefaultMQPushConsumer.pullBatchSize). */
    private static final int PULLED = 32;
    /** In the place of a message: the store finds no unit. */
    private static final long NO_UNIT = -2;
    /** Offsets of one queue that are asked for. */
    private static final long MOST_ASKED = 100_000;

    /** Stands last in the list of dispatchers, in front of IndexPatience alone. */
    private static final class Recorder implements CommitLogDispatcher {
        private volatile long lowest = -1;
        private volatile long highest = -1;
        private volatile long records;

        @Override
        public synchronized void dispatch(DispatchRequest request) {
            long offset = request.getCommitLogOffset();
            lowest = records == 0 ? offset : Math.min(lowest, offset);
            highest = Math.max(highest, offset);
            records = records + 1;
        }

        String json() {
            return String.format(Locale.ROOT, "{\"lowest\": %d, \"highest\": %d, \"records\": %d}", lowest, highest, records);
        }
    }

    /** A store that was started, what it dispatched, and the group of its threads. */
    private record Started(OracleStore store, Recorder recorder, ThreadGroup group, Path root) {
    }

    private final Map<String, Started> stores = new HashMap<>();
    private int groups;

    private Start() {
    }

    public static void main(String[] argv) {
        String steps = "start NAME DIR [SETTING=VALUE ...], put NAME SEED COUNT TOPIC/QUEUE ..., look NAME [TOPIC/QUEUE ...], read NAME, find NAME TOPIC KEY ..., "
            + "leave NAME, close NAME, master NAME EPOCH, slave NAME MASTER EPOCH SECONDS";
        Main.run("usage: Start   (steps on stdin: " + steps + ")", () -> {
            Start start = new Start();
            CrashSteps.run(Map.of(
                "start", words -> start.start(words.get(0), Path.of(words.get(1)), words.subList(2, words.size())),
                "put", words -> start.put(words.get(0), words.subList(1, words.size())),
                "look", words -> start.look(words.get(0), words.subList(1, words.size())),
                "read", words -> start.read(words.get(0)),
                "master", words -> start.master(words.get(0), Integer.parseInt(words.get(1))),
                "slave", words -> start.slave(words.get(0), words.get(1), Integer.parseInt(words.get(2)), Integer.parseInt(words.get(3))),
                "find", words -> Puts.find(start.stores.get(words.get(0)).store(), words.subList(1, words.size())),
                "leave", words -> start.leave(words.get(0)),
                "close", words -> start.close(words.get(0))), 3600);
        });
    }

    /** Settings are those of MessageStoreConfig, as broker.conf names them. */
    private String start(String name, Path root, List<String> settings) throws Exception {
        Properties properties = new Properties();
        for (String setting : settings) {
            int equals = setting.indexOf('=');
            properties.setProperty(setting.substring(0, equals), setting.substring(equals + 1));
        }
        MessageStoreConfig config = Settings.of(root);
        MixAll.properties2Object(properties, config);
        // A machine may be busy.
        config.setOsPageCacheBusyTimeOutMills(Long.MAX_VALUE);
        boolean ofGroup = "true".equals(properties.getProperty("enableControllerMode"));
        ThreadGroup group = new ThreadGroup("start-" + groups++);
        Recorder recorder = new Recorder();
        OracleStore store;
        try {
            // Netty's classes alone may take seconds.
            long stall = config.isEnableDLegerCommitLog() ? 4 * STALL : STALL;
            store = begun(group, () -> begin(config, root, recorder, ofGroup), recorder, stall);
            if (config.isEnableDLegerCommitLog()) {
                lead(store);
            }
        } catch (Exception e) {
            Throwable cause = e.getCause() == null ? e : e.getCause();
            cause.printStackTrace();
            return "{\"loads\": false, \"reason\": \"" + hex(cause.toString()) + "\"}";
        }
        stores.put(name, new Started(store, recorder, group, root));
        return look(name, List.of());
    }

    /** Puts messages of a seed: see Puts. */
    private String put(String name, List<String> words) throws Exception {
        Puts puts = new Puts(stores.get(name).store(), Long.parseLong(words.get(0)));
        return puts.put(Integer.parseInt(words.get(1)), words.subList(2, words.size()));
    }

    /** What a started store says of itself when all is dispatched; of RocksDB's queues only of those named, topics as hex of UTF-8. */
    private String look(String name, List<String> named) throws Exception {
        OracleStore store = stores.get(name).store();
        Recorder recorder = stores.get(name).recorder();
        long behind = dispatched(store, recorder);
        if (store.getCommitLog() instanceof DLedgerCommitLog) {
            // DLedgerRoleChangeHandler does so when all is dispatched.
            store.recoverTopicQueueTable();
        }
        return String.format(Locale.ROOT, "{\"loads\": true, \"min\": %d, \"max\": %d, \"behind\": %d, \"dispatched\": %s, \"queues\": [%s]}",
            store.getMinPhyOffset(), store.getMaxPhyOffset(), behind, recorder.json(), queues(store, named));
    }

    /** A store of a controller group becomes master: what it says of itself then. */
    private String master(String name, int epoch) throws Exception {
        boolean changed = stores.get(name).store().beMaster(epoch);
        return ofGroup(name, changed);
    }

    /** It becomes slave of another store, and copies until its log is as long as that, or has not changed for {@code seconds}. */
    private String slave(String name, String master, int epoch, int seconds) throws Exception {
        OracleStore store = stores.get(name).store();
        OracleStore followed = stores.get(master).store();
        boolean changed = store.beSlave(followed, epoch);
        long moved = System.nanoTime();
        // It may be longer at first, and is cut.
        long least = moved + TimeUnit.SECONDS.toNanos(1);
        for (long before = -1; System.nanoTime() - moved < TimeUnit.SECONDS.toNanos(seconds); Thread.sleep(20)) {
            long end = store.getMaxPhyOffset();
            moved = end == before ? moved : System.nanoTime();
            before = end;
            if (end == followed.getMaxPhyOffset() && System.nanoTime() > least) {
                break;
            }
        }
        return ofGroup(name, changed);
    }

    private String ofGroup(String name, boolean changed) throws Exception {
        OracleStore store = stores.get(name).store();
        String epochs = store.epochs().stream().map(one -> "\"" + one + "\"").collect(Collectors.joining(", "));
        return String.format(Locale.ROOT, "{\"changed\": %b, \"epochs\": [%s], \"said\": %s}", changed, epochs, look(name, List.of()));
    }

    private static OracleStore begin(MessageStoreConfig config, Path root, Recorder recorder, boolean ofGroup) throws Exception {
        OracleStore store = new OracleStore(config, null, ofGroup);
        store.getDispatcherList().addLast(recorder);
        IndexPatience.of(store, root);
        if (!store.load()) {
            throw new Main.Failure("load() is false");
        }
        if (store.getCommitLog() instanceof DLedgerCommitLog) {
            // An election of one node need not take seconds.
            DLedgerConfig node = node(store).getdLedgerConfig();
            node.setMinVoteIntervalMs(10);
            node.setMaxVoteIntervalMs(20);
        }
        store.start();
        return store;
    }

    private static DLedgerServer node(OracleStore store) {
        return ((DLedgerCommitLog) store.getCommitLog()).getdLedgerServer();
    }

    /** Waits until the only node of a group leads it, and has committed its log. */
    private static void lead(OracleStore store) throws Exception {
        DLedgerServer node = node(store);
        long begin = System.nanoTime();
        while (!node.getMemberState().isLeader() || node.getdLedgerStore().getCommittedIndex() < node.getdLedgerStore().getLedgerEndIndex()) {
            if (System.nanoTime() - begin > ELECTED) {
                throw new Main.Failure("the node does not lead, or commits nothing");
            }
            Thread.sleep(2);
        }
    }

    /**
     * A store's threads are of the group of the thread that starts it: IndexPatience looks for them there. 4.9, and 5.x with
     * recheckReputOffsetFromCq, start only when all is dispatched: on some damaged logs never.
     */
    private static OracleStore begun(ThreadGroup group, Callable<OracleStore> task, Recorder recorder, long stall) throws Exception {
        FutureTask<OracleStore> future = new FutureTask<>(task);
        new Thread(group, future).start();
        for (long before = -1; ; before = recorder.records) {
            try {
                return future.get(stall, TimeUnit.NANOSECONDS);
            } catch (TimeoutException e) {
                if (recorder.records == before && !retries()) {
                    throw new Main.Failure("start() does not end");
                }
            }
        }
    }

    /** Whether a store tries to put a unit into a queue whose file it cannot make: 30 times, a second each. */
    private static boolean retries() {
        return Thread.getAllStackTraces().values().stream().flatMap(Arrays::stream)
            .anyMatch(frame -> frame.getMethodName().equals("putMessagePositionInfoWrapper"));
    }

    /** How many bytes are left that the store does not dispatch; 0 if all goes well. */
    private static long dispatched(OracleStore store, Recorder recorder) throws InterruptedException {
        long moved = System.nanoTime();
        for (long before = Long.MAX_VALUE; ; ) {
            long behind = store.dispatchBehindBytes();
            if (behind <= 0 && !store.holdsUnits()) {
                return 0;
            }
            long seen = behind + recorder.records;
            moved = seen == before ? moved : System.nanoTime();
            before = seen;
            if (System.nanoTime() - moved > STALL) {
                if (!retries()) {
                    return behind;
                }
                moved = System.nanoTime();
            }
            Thread.sleep(2);
        }
    }

    /**
     * Of each queue [topic as hex of UTF-8, id, min offset, max offset, [where the message at each offset between lies, or -1; or
     * NO_UNIT where the store says that it finds no unit]].
     */
    private static String queues(OracleStore store, List<String> named) throws Exception {
        StringBuilder all = new StringBuilder();
        Map<String, TreeSet<Integer>> table = new TreeMap<>();
        store.getConsumeQueueTable().forEach((topic, queues) -> table.put(topic, new TreeSet<>(queues.keySet())));
        for (String one : named) {
            int slash = one.indexOf('/');
            String topic = new String(HexFormat.of().parseHex(one.substring(0, slash)), StandardCharsets.UTF_8);
            table.computeIfAbsent(topic, key -> new TreeSet<>()).add(Integer.valueOf(one.substring(slash + 1)));
        }
        for (Map.Entry<String, TreeSet<Integer>> topic : table.entrySet()) {
            for (int queue : topic.getValue()) {
                all.append(all.isEmpty() ? "" : ", ").append(queue(store, topic.getKey(), queue));
            }
        }
        return all.toString();
    }

    private static String queue(OracleStore store, String topic, int queue) throws Exception {
        // RocksDB's queues correct it when they are asked, and may say it only when they are asked again.
        store.getMinOffsetInQueue(topic, queue);
        long min = store.getMinOffsetInQueue(topic, queue);
        long max = store.getMaxOffsetInQueue(topic, queue);
        StringBuilder places = new StringBuilder();
        for (long at = min; at < Math.min(max, min + MOST_ASKED); at++) {
            places.append(at == min ? "" : ",").append(place(store, topic, queue, at));
        }
        return String.format(Locale.ROOT, "[\"%s\", %d, %d, %d, [%s]]", hex(topic), queue, min, max, places);
    }

    /**
     * What a consumer that begins at a queue's min offset is given, in the order in which it comes: of each queue [topic as hex of
     * UTF-8, id, [where the messages lie]]. It goes on where the store says, as a client does.
     */
    private String read(String name) throws Exception {
        OracleStore store = stores.get(name).store();
        StringBuilder all = new StringBuilder();
        Map<String, ? extends Map<Integer, ?>> table = new TreeMap<>(store.getConsumeQueueTable());
        for (Map.Entry<String, ? extends Map<Integer, ?>> topic : table.entrySet()) {
            for (int queue : new TreeSet<>(topic.getValue().keySet())) {
                String given = given(store, topic.getKey(), queue);
                all.append(all.isEmpty() ? "" : ", ").append(String.format(Locale.ROOT, "[\"%s\", %d, [%s]]", hex(topic.getKey()), queue, given));
            }
        }
        return "[" + all + "]";
    }

    private static String given(OracleStore store, String topic, int queue) throws Exception {
        StringBuilder places = new StringBuilder();
        long end = Math.min(store.getMaxOffsetInQueue(topic, queue), store.getMinOffsetInQueue(topic, queue) + MOST_ASKED);
        for (long at = store.getMinOffsetInQueue(topic, queue); at < end; ) {
            GetMessageResult result = store.getMessage("group", topic, queue, at, PULLED, null);
            try {
                for (ByteBuffer message : result.getMessageBufferList()) {
                    long place = message.remaining() >= PHYSICAL_OFFSET + Long.BYTES ? message.getLong(PHYSICAL_OFFSET) : -1;
                    places.append(places.isEmpty() ? "" : ",").append(place);
                }
                if (result.getNextBeginOffset() <= at) {
                    break;
                }
                at = result.getNextBeginOffset();
            } finally {
                result.release();
            }
        }
        return places.toString();
    }

    private static String hex(String text) {
        return HexFormat.of().formatHex(text.getBytes(StandardCharsets.UTF_8));
    }

    private static long place(OracleStore store, String topic, int queue, long at) {
        GetMessageResult result;
        try {
            result = store.getMessage("group", topic, queue, at, 1, null);
        } catch (NullPointerException e) {
            // 5.4 and later, of RocksDB's queues, at an offset without a unit and at the one before it: RocksDBReusableIterator.next
            return store.placeByUnit(topic, queue, at, NO_UNIT);
        }
        try {
            for (ByteBuffer message : result.getMessageBufferList()) {
                return message.remaining() >= PHYSICAL_OFFSET + Long.BYTES ? message.getLong(PHYSICAL_OFFSET) : -1;
            }
            return result.getStatus() == GetMessageStatus.OFFSET_FOUND_NULL ? NO_UNIT : -1;
        } finally {
            result.release();
        }
    }

    /** Ends a store in the background: its folder is wanted no more. One with RocksDB goes on until the JVM ends. */
    private String leave(String name) {
        Started started = stores.remove(name);
        if (!started.store().inRocksDB()) {
            end(started);
        }
        return "left";
    }

    /** Shuts a store down as a broker does. */
    private String close(String name) throws Exception {
        Started started = stores.remove(name);
        end(started).get();
        if (Files.exists(started.root().resolve("abort"))) {
            throw new Main.Failure("the store did not shut down cleanly");
        }
        return "closed";
    }

    private static FutureTask<Void> end(Started started) {
        FutureTask<Void> task = new FutureTask<>(() -> {
            // What the store waits for when it ends, some seconds, nobody needs here; but RocksDB's threads die with the JVM.
            if (!started.store().inRocksDB()) {
                Thread.currentThread().interrupt();
            }
            started.store().shutdown();
            return null;
        });
        new Thread(started.group(), task).start();
        return task;
    }
}
