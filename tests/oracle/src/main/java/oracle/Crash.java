package oracle;

import java.lang.reflect.Method;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.BooleanSupplier;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** Stores that are opened as they stand, put more records, asked for keys or read, and closed or left open when the JVM dies. */
final class Crash {
    private static final int PHYSICAL_OFFSET = 28;
    /** queryMessage with a type of index; null before 5.4. */
    private static final Method BY_TYPE = Arrays.stream(OracleStore.class.getMethods())
        .filter(method -> method.getName().equals("queryMessage") && method.getParameterCount() == 7).findAny().orElse(null);

    private final Map<String, OracleStore> stores = new HashMap<>();
    /** Store time of the record that was put last, by name of the store. */
    private final Map<String, Long> newest = new HashMap<>();

    private Crash() {
    }

    public static void main(String[] argv) {
        Main.run("usage: Crash   (steps on stdin: loads, open, put, flush, find, serve, close, halt)", () -> {
            Crash crash = new Crash();
            CrashSteps.run(Map.of(
                "loads", words -> String.valueOf(crash.loads(words.get(0), Path.of(words.get(1)), words.subList(2, words.size()))),
                "open", words -> crash.open(words.get(0), Path.of(words.get(1)), words.subList(2, words.size())),
                "put", words -> crash.put(words.get(0), words.get(1), words.get(2), Integer.parseInt(words.get(3))),
                "flush", words -> crash.flush(words.get(0)),
                "end", words -> crash.end(words.get(0), words.get(1)),
                "find", words -> crash.find(words.get(0), Path.of(words.get(1)), Path.of(words.get(2))),
                "serve", words -> crash.serve(words.get(0), words.subList(1, words.size())),
                "close", crash::close,
                "halt", words -> {
                    Runtime.getRuntime().halt(9);
                    return "never";
                }), 1800);
        });
    }

    /** Opens a store; the other words are options as Settings knows them. */
    private String open(String name, Path root, List<String> options) throws Exception {
        if (!loads(name, root, options)) {
            throw new Main.Failure("the store in " + root + " does not load");
        }
        return String.valueOf(stores.get(name).getMaxPhyOffset());
    }

    /** Opens a store and says whether it loads: a broker whose store does not load does not start. */
    private boolean loads(String name, Path root, List<String> options) throws Exception {
        Args args = new Args(options.toArray(new String[0]),
            Set.of("segment-size", "cq-file-size", "hash-slots", "index-items", "set"), Set.of("enable-lmq"));
        MessageStoreConfig config = Settings.of(root, args, Settings.SEGMENT_SIZE);
        OracleStore store = new OracleStore(config, null);
        IndexPatience.of(store, root);
        if (!store.load()) {
            return false;
        }
        stores.put(name, store);
        store.start();
        dispatched(store);
        return true;
    }

    /**
     * Reads queues (words: topic, queue id, ...) from their first offset to their end, as a consumer would; answers the
     * physical offsets of the messages by queue.
     */
    private String serve(String name, List<String> queues) throws Exception {
        OracleStore store = stores.get(name);
        StringBuilder all = new StringBuilder();
        for (int i = 0; i < queues.size(); i += 2) {
            String topic = queues.get(i);
            int queue = Integer.parseInt(queues.get(i + 1));
            long end = store.getMaxOffsetInQueue(topic, queue);
            List<String> places = new ArrayList<>();
            for (long at = store.getMinOffsetInQueue(topic, queue); at < end; at++) {
                GetMessageResult result = store.getMessage("group", topic, queue, at, 1, null);
                for (ByteBuffer message : result.getMessageBufferList()) {
                    places.add(String.valueOf(placeOf(message)));
                }
                result.release();
            }
            all.append(i == 0 ? "" : " ").append(places.isEmpty() ? "-" : String.join(",", places));
        }
        return all.toString();
    }

    /** Puts records with the keys PREFIX-0, PREFIX-1, ... into queue 0; answers when all of them are dispatched. */
    private String put(String name, String topic, String prefix, int count) throws Exception {
        OracleStore store = stores.get(name);
        StringBuilder offsets = new StringBuilder();
        for (int i = 0; i < count; i++) {
            BrokerMessage message = new BrokerMessage();
            message.setTopic(topic);
            message.setQueueId(0);
            message.setBody(("put later: " + prefix + i).getBytes(StandardCharsets.UTF_8));
            message.setBornTimestamp(System.currentTimeMillis());
            message.setBornHost(new InetSocketAddress("127.0.0.1", 1));
            message.setStoreHost(new InetSocketAddress("127.0.0.1", 2));
            message.setKeys(prefix + "-" + i);
            message.setTags(prefix);
            MessageAccessor.putProperty(message, MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, prefix + "-id-" + i);
            message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
            PutMessageResult result = store.putMessage(message);
            if (!result.isOk()) {
                throw new Main.Failure("record " + i + " was refused: " + result.getPutMessageStatus());
            }
            newest.put(name, result.getAppendMessageResult().getStoreTimestamp());
            offsets.append(i == 0 ? "" : ",").append(result.getAppendMessageResult().getWroteOffset());
        }
        dispatched(store);
        return offsets.toString();
    }

    /**
     * Puts the commitlog on the disk, and the checkpoint that tells of it: the store's own FlushConsumeQueueService does that
     * a second after the start, too early to know of what was put then, and each minute.
     */
    private String flush(String name) throws Exception {
        OracleStore store = stores.get(name);
        long end = store.flush();
        // CommitLog.FlushRealTimeService, each half second.
        await("told the checkpoint", () -> store.getStoreCheckpoint().getPhysicMsgTimestamp() >= newest.getOrDefault(name, 0L));
        store.getStoreCheckpoint().flush();
        return String.valueOf(end);
    }

    /** Behind which offset queue 0 of a topic ends, for those who read it. */
    private String end(String name, String topic) throws Exception {
        return String.valueOf(stores.get(name).getMaxOffsetInQueue(topic, 0));
    }

    /**
     * Asks for each key of a file (lines: topic, tab, key, and from 5.4 on a tab and T where the key is a tag); the answers
     * are lines of physical offsets, in that order.
     */
    private String find(String name, Path questions, Path answers) throws Exception {
        OracleStore store = stores.get(name);
        List<String> lines = new ArrayList<>();
        int found = 0;
        for (String question : Files.readAllLines(questions)) {
            String[] words = question.split("\t");
            // As many as a store gives to one question, whatever is asked for.
            int most = store.getMessageStoreConfig().getMaxMsgsNumBatch();
            QueryMessageResult result = words.length == 2
                ? store.queryMessage(words[0], words[1], most, 0, Long.MAX_VALUE)
                : (QueryMessageResult) BY_TYPE.invoke(store, words[0], words[1], most, 0L, Long.MAX_VALUE, words[2], null);
            StringBuilder line = new StringBuilder();
            for (ByteBuffer record : result.getMessageBufferList()) {
                line.append(line.isEmpty() ? "" : ",").append(placeOf(record));
            }
            found += line.isEmpty() ? 0 : 1;
            result.release();
            lines.add(line.toString());
        }
        Files.write(answers, lines);
        return String.valueOf(found);
    }

    /** A store hands out whatever lies where a unit or an item points: -1 for what is no record. */
    private static long placeOf(ByteBuffer record) {
        return record.remaining() >= PHYSICAL_OFFSET + Long.BYTES ? record.getLong(PHYSICAL_OFFSET) : -1;
    }

    /** Shuts stores down, all at once: each of them sleeps for seconds. */
    private String close(List<String> names) throws InterruptedException {
        List<Thread> threads = new ArrayList<>();
        for (String name : names) {
            Thread thread = new Thread(stores.remove(name)::shutdown);
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        return "closed";
    }

    private static void dispatched(OracleStore store) throws InterruptedException, Main.Failure {
        await("dispatched", () -> store.dispatchBehindBytes() <= 0);
    }

    private static void await(String what, BooleanSupplier done) throws InterruptedException, Main.Failure {
        long end = System.nanoTime() + 240_000_000_000L;
        while (!done.getAsBoolean()) {
            if (System.nanoTime() > end) {
                throw new Main.Failure("not " + what + " after 240 s");
            }
            Thread.sleep(2);
        }
    }
}
