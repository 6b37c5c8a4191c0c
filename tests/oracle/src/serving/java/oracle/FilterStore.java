package oracle;

import java.net.InetSocketAddress;
import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Set;
import java.util.SplittableRandom;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.filter.CommitLogDispatcherCalcBitMap;
import org.apache.rocketmq.broker.filter.ConsumerFilterManager;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.ConsumeQueue;
import org.apache.rocketmq.store.ConsumeQueueExt;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * The real store with {@code enableConsumeQueueExt}, and a broker's dispatcher of bit maps: registers consumer groups, writes a
 * log, rebuilds one, or prints what it reads of each unit.
 */
final class FilterStore {
    private static final String USAGE = "usage: FilterStore STORE --register FILE | --put RECORDS [--seed N] | --rebuild |"
        + " --dump | --bloom [--segment-size N] [--cq-file-size N] [--ext-file-size N] [--hash-slots N] [--index-items N]"
        + " [--enable-lmq] [--no-bits] [--error-rate N] [--consumers N]";

    private FilterStore() {
    }

    public static void main(String[] argv) {
        Main.run(USAGE, () -> run(new Args(argv, Set.of("register", "put", "seed", "segment-size", "cq-file-size",
            "ext-file-size", "hash-slots", "index-items", "error-rate", "consumers"),
            Set.of("rebuild", "dump", "no-bits", "bloom", "enable-lmq"))));
    }

    private static void run(Args args) throws Exception {
        Path root = Path.of(args.word("store folder"));
        List<Path> segments = Folders.children(root.resolve("commitlog"));
        MessageStoreConfig config = Settings.of(root, args, segments.isEmpty() ? 1 << 20 : Files.size(segments.get(0)));
        config.setEnableConsumeQueueExt(true);
        config.setMappedFileSizeConsumeQueueExt(args.count("ext-file-size", 48 << 20));
        config.setFlushIntervalConsumeQueue(Integer.MAX_VALUE);
        Settings.recoverSegments(config, Integer.MAX_VALUE);
        BrokerConfig broker = new BrokerConfig();
        broker.setEnableCalcFilterBitMap(!args.has("no-bits"));
        broker.setMaxErrorRateOfBloomFilter(args.count("error-rate", broker.getMaxErrorRateOfBloomFilter()));
        broker.setExpectConsumerNumUseFilter(args.count("consumers", broker.getExpectConsumerNumUseFilter()));
        if (args.has("bloom")) {
            org.apache.rocketmq.filter.util.BloomFilter filter = org.apache.rocketmq.filter.util.BloomFilter.createByFn(
                broker.getMaxErrorRateOfBloomFilter(), broker.getExpectConsumerNumUseFilter());
            System.out.println(filter.getK() + " " + filter.getM());
            return;
        }
        ConsumerFilterManager filters = new ConsumerFilterManager(
            new BrokerController(broker, new NettyServerConfig(), new NettyClientConfig(), config));
        filters.load();
        if (args.has("register")) {
            for (String line : Files.readAllLines(Path.of(args.required("register")))) {
                String[] words = line.split("\t");
                if (!filters.register(words[0], words[1], words[2], "SQL92", 1)) {
                    throw new Main.Failure("not registered: " + line);
                }
            }
            filters.persist();
            return;
        }
        OracleStore store = new OracleStore(config, null);
        store.getDispatcherList().addFirst(new CommitLogDispatcherCalcBitMap(broker, filters));
        IndexPatience.of(store, root);
        if (!store.load()) {
            throw new Main.Failure("the store in " + root + " does not load");
        }
        store.start();
        if (args.has("put")) {
            put(store, args.count("put", 1), new SplittableRandom(args.seed("seed", 1)));
        }
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(2);
        }
        if (args.has("dump")) {
            dump(store, root);
        }
        Thread.currentThread().interrupt();
        store.shutdown();
        Thread.interrupted();
        if (Files.exists(root.resolve("abort"))) {
            throw new Main.Failure("the store in " + root + " did not shut down cleanly");
        }
    }

    private static void put(OracleStore store, int records, SplittableRandom random) throws Main.Failure {
        String[] colours = {"red", "green", "blue", "it's", "\u00e4\u4f60"};
        for (int i = 0; i < records; i++) {
            BrokerMessage message = new BrokerMessage();
            message.setTopic("Topic" + random.nextInt(4));
            message.setQueueId(random.nextInt(2));
            message.setBornTimestamp(1_700_000_000_000L + i);
            message.setBornHost(new InetSocketAddress("127.0.0.1", 1234));
            message.setStoreHost(new InetSocketAddress("127.0.0.1", 10911));
            message.setBody(new byte[1 + random.nextInt(100)]);
            MessageAccessor.setProperties(message, new HashMap<>());
            if (random.nextInt(3) == 0) {
                message.setTags("tag" + random.nextInt(5));
            }
            if (random.nextInt(3) != 0) {
                MessageAccessor.putProperty(message, "a", Integer.toString(random.nextInt(-5, 20)));
            }
            if (random.nextInt(3) == 0) {
                MessageAccessor.putProperty(message, "price", random.nextInt(4) == 0 ? "dear" : random.nextInt(50) + ".5");
            }
            if (random.nextInt(2) == 0) {
                MessageAccessor.putProperty(message, "colour", colours[random.nextInt(colours.length)]);
            }
            message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
            PutMessageResult result = store.putMessage(message);
            if (!result.isOk()) {
                throw new Main.Failure("a put ended with " + result.getPutMessageStatus());
            }
        }
    }

    /** A line for each unit: topic, queue, number, phy_offset, and the tagsCode, store time and bit map that getExt finds. */
    private static void dump(OracleStore store, Path root) throws Exception {
        for (Path topic : Folders.children(root.resolve("consumequeue"))) {
            for (Path queue : Folders.children(topic)) {
                String name = topic.getFileName().toString();
                int id = Integer.parseInt(queue.getFileName().toString());
                ConsumeQueue units = (ConsumeQueue) store.getConsumeQueueTable().get(name).get(id);
                for (long at = units.getMinOffsetInQueue(); at < units.getMaxOffsetInQueue(); at++) {
                    SelectMappedBufferResult slot = units.getIndexBuffer(at);
                    ByteBuffer unit = slot.getByteBuffer();
                    long offset = unit.getLong();
                    unit.getInt();
                    ConsumeQueueExt.CqExtUnit found;
                    try {
                        found = units.getExt(unit.getLong());
                    } catch (BufferUnderflowException e) {
                        System.out.println(name + " " + id + " " + at + " " + offset + " fails");
                        continue;
                    } finally {
                        slot.release();
                    }
                    StringBuilder bits = new StringBuilder();
                    if (found != null && found.getFilterBitMap() != null) {
                        for (byte part : found.getFilterBitMap()) {
                            bits.append(String.format("%02x", part));
                        }
                    }
                    System.out.println(name + " " + id + " " + at + " " + offset + " "
                        + (found == null ? "none" : found.getTagsCode() + " " + found.getMsgStoreTime() + " " + bits));
                }
            }
        }
    }
}
