package oracle;

import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.body.TopicConfigSerializeWrapper;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** What the real store answers: queryMessage for keys; getMessage and getOffsetInQueueByTime for every offset of queues. */
final class Ask {
    private static final String USAGE = "usage: Ask FILE, with lines of words separated by blanks:\n"
        + "  store DIR SEGMENT CQ BATCHCQ SLOTS ITEMS [TOPICS.json]\n  key TOPIC KEY\n  tag TOPIC TAG (5.4.0 on)\n  queue TOPIC ID\nnames are hex of UTF-8";
    private static final int PHYSICAL_OFFSET = 28;
    /** Messages of a key; the store makes room for so many at each question. */
    private static final int MOST = 10_000;

    private Ask() {
    }

    public static void main(String[] argv) {
        Main.run(USAGE, () -> {
            DefaultMessageStore store = null;
            for (String line : Files.readAllLines(Path.of(new Args(argv, Set.of(), Set.of()).word("file of questions")))) {
                String[] words = line.split(" ");
                switch (words[0]) {
                    case "store" -> store = open(words);
                    case "key" -> key(store, text(words[1]), text(words[2]));
                    case "tag" -> tag(store, text(words[1]), text(words[2]));
                    case "queue" -> queue(store, text(words[1]), Integer.parseInt(words[2]));
                    default -> throw new Args.UsageException("unknown question " + words[0]);
                }
            }
        });
    }

    private static String text(String hex) {
        return new String(HexFormat.of().parseHex(hex), StandardCharsets.UTF_8);
    }

    private static DefaultMessageStore open(String[] words) throws Exception {
        MessageStoreConfig config = Settings.of(Path.of(words[1]));
        config.setMappedFileSizeCommitLog(Integer.parseInt(words[2]));
        config.setMappedFileSizeConsumeQueue(Integer.parseInt(words[3]));
        config.setMapperFileSizeBatchConsumeQueue(Integer.parseInt(words[4]));
        config.setMaxHashSlotNum(Integer.parseInt(words[5]));
        config.setMaxIndexNum(Integer.parseInt(words[6]));
        config.setEnableCompaction(false);
        // A broker gives 64 messages of a key by default.
        config.setMaxMsgsNumBatch(MOST);
        ConcurrentMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
        if (words.length > 7) {
            String json = Files.readString(Path.of(words[7]));
            topics = RemotingSerializable.fromJson(json, TopicConfigSerializeWrapper.class).getTopicConfigTable();
        }
        // Never shut down: that takes seconds, and the folder is the caller's copy.
        DefaultMessageStore store = new DefaultMessageStore(config, new BrokerStatsManager("oracle", false),
            (topic, queue, offset, tags, time, bits, properties) -> { }, new BrokerConfig(), topics);
        if (!store.load()) {
            throw new Main.Failure("the store in " + words[1] + " does not load");
        }
        store.start();
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(2);
        }
        return store;
    }

    /** [offset in the log, ...] */
    private static void key(DefaultMessageStore store, String topic, String key) {
        offsets(store.queryMessage(topic, key, MOST, 0, Long.MAX_VALUE));
    }

    /** [offset in the log, ...], as a broker asks for the index type of tags; 5.3 has no such question. */
    private static void tag(DefaultMessageStore store, String topic, String tag) throws ReflectiveOperationException {
        Method ask = DefaultMessageStore.class.getMethod("queryMessage", String.class, String.class, int.class, long.class, long.class,
            String.class, String.class);
        offsets((QueryMessageResult) ask.invoke(store, topic, tag, MOST, 0L, Long.MAX_VALUE, "T", null));
    }

    private static void offsets(QueryMessageResult result) {
        StringBuilder line = new StringBuilder();
        for (ByteBuffer message : result.getMessageBufferList()) {
            line.append(line.isEmpty() ? "" : ", ").append(message.getLong(PHYSICAL_OFFSET));
        }
        result.release();
        System.out.println("[" + line + "]");
    }

    /** [first offset, [offset in the log or -1, ...], [[store time, offset of the first stored then or later], ...]] */
    private static void queue(DefaultMessageStore store, String topic, int queue) throws Exception {
        StringBuilder places = new StringBuilder();
        StringBuilder times = new StringBuilder();
        long first = store.getMinOffsetInQueue(topic, queue);
        for (long at = first; at < store.getMaxOffsetInQueue(topic, queue); at++) {
            GetMessageResult result = store.getMessage("group", topic, queue, at, 1, null);
            long place = -1;
            if (result.getStatus() == GetMessageStatus.FOUND) {
                ByteBuffer message = result.getMessageBufferList().get(0);
                place = message.getLong(PHYSICAL_OFFSET);
                long time = store.getCommitLog().pickupStoreTimestamp(place, message.getInt(0));
                for (long asked = time - 1; asked <= time + 1; asked++) {
                    times.append(times.isEmpty() ? "" : ", ").append("[").append(asked).append(", ")
                        .append(store.getOffsetInQueueByTime(topic, queue, asked)).append("]");
                }
            }
            places.append(places.isEmpty() ? "" : ", ").append(place);
            result.release();
        }
        System.out.println("[" + first + ", [" + places + "], [" + times + "]]");
    }
}
