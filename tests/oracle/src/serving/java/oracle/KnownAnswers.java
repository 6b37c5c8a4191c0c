package oracle;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.rocketmq.common.TopicFilterType;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.filter.util.BloomFilter;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.index.IndexService;

/** What RocketMQ's own code answers where the SQL functions must answer the same: one JSON object. */
final class KnownAnswers {
    private static final String[] TEXTS = {
        "", "a", "TagA", "TagB", "polygenelubricants", "Aa", "BB", "group#TopicA", "CID_ORDERS#orders", "ключ", "键", "😀", "a😀b", "\u0000",
        "k\u0000z", "TagA || TagB", "T#x", "e\u0301", "\u200b", "\uffff", "0123456789abcde", "0123456789abcdef", "0123456789abcdef0", "x".repeat(1000)};
    private static final int[][] FILTERS = {{20, 32}, {20, 64}, {10, 128}, {1, 1}, {99, 7}, {50, 100}, {1, 100000}, {33, 31}};
    private static final String[] HOSTS = {"10.0.0.9", "255.255.255.255", "0.0.0.0", "2001:db8::1", "fe80::9", "::"};
    private static final int[] PORTS = {0, 80, 10911, 65535};
    private static final long[] OFFSETS = {0, 1, 1073741824L, Long.MAX_VALUE};

    private static final int INDEX_COUNT = 36;
    private static final int INDEX_HEADER = 40;
    private static final int SLOT = 4;
    private static final int ITEM = 20;
    private static final int SLOTS = 10;

    private KnownAnswers() {
    }

    public static void main(String[] args) {
        Main.run("usage: KnownAnswers", () -> System.out.println(answers()));
    }

    /** The hashes of the items that a broker makes of a record of TopicA with these TAGS: one, or none (before 5.4.0, too). */
    private static String tagItems(IndexService service, Path folder, String tags) throws Exception {
        Map<String, String> properties = Map.of(MessageConst.PROPERTY_TAGS, tags);
        int before = hashes(folder).size();
        service.buildIndex(new DispatchRequest("TopicA", 0, before, 100, 0, 1_700_000_000_000L, 0, "", null, 0, 0, properties));
        List<Integer> all = hashes(folder);
        return all.subList(before, all.size()).toString();
    }

    private static List<Integer> hashes(Path folder) throws IOException {
        List<Integer> found = new ArrayList<>();
        for (Path file : Folders.children(folder)) {
            ByteBuffer data = ByteBuffer.wrap(Files.readAllBytes(file));
            for (int item = 1; item < data.getInt(INDEX_COUNT); item++) {
                found.add(data.getInt(INDEX_HEADER + SLOT * SLOTS + ITEM * item));
            }
        }
        return found;
    }

    private static String answers() throws Exception {
        Path root = Files.createTempDirectory("known");
        try {
            MessageStoreConfig config = Settings.of(root);
            config.setMaxHashSlotNum(SLOTS);
            config.setMaxIndexNum(1000);
            return answers(new IndexService(new OracleStore(config, null)), root.resolve("index"));
        } finally {
            Folders.delete(root);
        }
    }

    private static String answers(IndexService service, Path index) throws Exception {
        StringBuilder json = new StringBuilder("{\n \"texts\": [");
        List<BloomFilter> filters = Arrays.stream(FILTERS).map(fn -> BloomFilter.createByFn(fn[0], fn[1])).collect(Collectors.toList());
        String between = "";
        for (String text : TEXTS) {
            long tags = MessageExtBrokerInner.tagsString2tagsCode(TopicFilterType.SINGLE_TAG, text);
            String bits = filters.stream().map(f -> Arrays.toString(f.calcBitPositions(text))).collect(Collectors.joining(", "));
            json.append(between).append("\n  {\"text\": ").append(quoted(text)).append(", \"hash\": ").append(text.hashCode())
                .append(", \"tags_code\": ").append(tags).append(", \"tag_items\": ").append(tagItems(service, index, text)).append(", \"bits\": [").append(bits).append("]}");
            between = ",";
        }
        json.append("\n ],\n \"filters\": [");
        json.append(filters.stream().map(f -> String.format("%n  {\"f\": %d, \"n\": %d, \"k\": %d, \"m\": %d}", f.getF(), f.getN(), f.getK(), f.getM()))
            .collect(Collectors.joining(",")));
        json.append("\n ],\n \"ids\": [");
        between = "";
        for (String host : HOSTS) {
            for (int port : PORTS) {
                for (long offset : OFFSETS) {
                    String id = MessageDecoder.createMessageId(new InetSocketAddress(InetAddress.getByName(host), port), offset);
                    String told = host.contains(":") ? "[" + host + "]" : host;
                    json.append(between).append(String.format(Locale.ROOT, "%n  [\"%s:%d\", %d, \"%s\"]", told, port, offset, id));
                    between = ",";
                }
            }
        }
        return json.append("\n ]\n}").toString();
    }

    private static String quoted(String text) {
        return text.chars().mapToObj(c -> c < 0x20 || c > 0x7e ? String.format("\\u%04x", c) : String.valueOf((char) c))
            .collect(Collectors.joining("", "\"", "\""));
    }
}
