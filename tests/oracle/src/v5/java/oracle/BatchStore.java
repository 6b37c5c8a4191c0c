package oracle;

import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import java.util.SplittableRandom;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** The real store with a topics.json, whose topics may have batch ConsumeQueues: writes a log, rebuilds one, or pulls from a store. */
final class BatchStore {
    private static final String USAGE = "usage: BatchStore STORE --topics FILE --put RECORDS [--seed N] | --rebuild | --pull MESSAGES"
        + " [--segment-size N] [--cq-file-size N] [--batch-cq-file-size N] [--hash-slots N] [--index-items N]";

    private BatchStore() {
    }

    public static void main(String[] argv) {
        Main.run(USAGE, () -> run(new Args(argv, Set.of("topics", "put", "seed", "pull", "segment-size", "cq-file-size",
            "batch-cq-file-size", "hash-slots", "index-items"), Set.of("rebuild"))));
    }

    private static void run(Args args) throws Exception {
        Path root = Path.of(args.word("store folder"));
        ConcurrentMap<String, TopicConfig> topics = OracleStore.topics(Path.of(args.required("topics")));
        List<Path> segments = Folders.children(root.resolve("commitlog"));
        MessageStoreConfig config = Settings.of(root, args, segments.isEmpty() ? 1 << 20 : Files.size(segments.get(0)));
        config.setMapperFileSizeBatchConsumeQueue(args.count("batch-cq-file-size", 300_000 * 46));
        config.setEnableCompaction(false);
        config.setFlushIntervalConsumeQueue(Integer.MAX_VALUE);
        DefaultMessageStore store = new DefaultMessageStore(config, new BrokerStatsManager("oracle", false),
            (topic, queue, offset, tags, time, bits, properties) -> { }, new BrokerConfig(), topics);
        IndexPatience.of(store, root);
        if (!store.load()) {
            throw new Main.Failure("the store in " + root + " does not load");
        }
        store.start();
        if (args.has("put")) {
            put(store, topics, args.count("put", 1), new SplittableRandom(args.seed("seed", 1)));
        }
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(2);
        }
        if (args.has("pull")) {
            pull(store, root, args.count("pull", 32));
        }
        Thread.currentThread().interrupt();
        store.shutdown();
        Thread.interrupted();
        if (Files.exists(root.resolve("abort"))) {
            throw new Main.Failure("the store in " + root + " did not shut down cleanly");
        }
        if (args.has("put")) {
            Folders.keepOnlyCommitlog(root);
        }
    }

    /** Messages and inner batches to two queues of each topic; to a topic of plain queues no batches, which a broker refuses. */
    private static void put(DefaultMessageStore store, ConcurrentMap<String, TopicConfig> topics, int records,
        SplittableRandom random) throws Main.Failure {
        List<String> names = topics.keySet().stream().sorted().toList();
        for (int i = 0; i < records; i++) {
            BrokerMessage message = new BrokerMessage();
            message.setTopic(names.get(random.nextInt(names.size())));
            message.setQueueId(random.nextInt(2));
            message.setBornTimestamp(1_700_000_000_000L + i);
            message.setBornHost(new InetSocketAddress("127.0.0.1", 1234));
            message.setStoreHost(new InetSocketAddress("127.0.0.1", 10911));
            message.setBody(new byte[1 + random.nextInt(300)]);
            message.setKeys("key" + random.nextInt(50));
            if (random.nextInt(3) == 0) {
                message.setTags("tag" + random.nextInt(5));
            }
            boolean batched = topics.get(message.getTopic()).getAttributes().containsValue("BatchCQ");
            if (batched && random.nextInt(4) != 0) {
                message.setSysFlag(MessageSysFlag.INNER_BATCH_FLAG | MessageSysFlag.NEED_UNWRAP_FLAG);
                if (random.nextInt(8) != 0) {
                    MessageAccessor.putProperty(message, MessageConst.PROPERTY_INNER_NUM, "" + (1 + random.nextInt(40)));
                }
            }
            message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
            PutMessageResult result = store.putMessage(message);
            if (!result.isOk()) {
                throw new Main.Failure("a put ended with " + result.getPutMessageStatus());
            }
        }
    }

    /** As a consumer that asks for so many messages at once: a line for each answer, topic, queue, asked, next, status, offsets. */
    private static void pull(DefaultMessageStore store, Path root, int messages) throws Exception {
        for (String kind : List.of("consumequeue", "batchconsumequeue")) {
            for (Path topic : Folders.children(root.resolve(kind))) {
                for (Path queue : Folders.children(topic)) {
                    pull(store, topic.getFileName().toString(), Integer.parseInt(queue.getFileName().toString()), messages);
                }
            }
        }
    }

    private static void pull(DefaultMessageStore store, String topic, int queue, int messages) throws Exception {
        long at = store.getMinOffsetInQueue(topic, queue);
        long end = store.getMaxOffsetInQueue(topic, queue);
        while (at < end) {
            GetMessageResult result = store.getMessage("group", topic, queue, at, messages, null);
            StringBuilder places = new StringBuilder();
            result.getMessageMapedList().forEach(found -> places.append(' ').append(found.getStartOffset()));
            System.out.printf("%s %d %d %d %s%s%n", topic, queue, at, result.getNextBeginOffset(), result.getStatus(), places);
            long next = result.getNextBeginOffset();
            result.release();
            if (next <= at) {
                return;
            }
            at = next;
        }
    }
}
