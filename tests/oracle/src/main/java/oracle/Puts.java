package oracle;

import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;
import java.util.SplittableRandom;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.store.AppendMessageResult;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;

/** Messages that a started store takes, as from a producer; and what it finds by key. */
final class Puts {
    private static final int PHYSICAL_OFFSET = 28;
    private static final int MOST_FOUND = 32;
    private static final int BODY_MAX = 900;
    private static final int DELAY_LEVELS = 18;
    private static final String[] TAGS = {"TagA", "TagB", "BB", "Aa"};
    private static final int[] STATES = {
        MessageSysFlag.TRANSACTION_PREPARED_TYPE, MessageSysFlag.TRANSACTION_COMMIT_TYPE, MessageSysFlag.TRANSACTION_ROLLBACK_TYPE};

    private final OracleStore store;
    private final long seed;
    private final SplittableRandom random;

    Puts(OracleStore store, long seed) {
        this.store = store;
        this.seed = seed;
        random = new SplittableRandom(seed).split();
    }

    /**
     * Puts plain and delayed messages and those of transactions. Of each [topic as hex of UTF-8, queue, queue offset, physical
     * offset, sysFlag, UNIQ_KEY].
     *
     * @param queues each {@code topic/queue}, the topic as hex
     */
    String put(int count, List<String> queues) throws Exception {
        List<String> all = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            String[] queue = queues.get(random.nextInt(queues.size())).split("/");
            String key = String.format(Locale.ROOT, "%08X%08X", seed, i);
            BrokerMessage message = message(text(queue[0]), Integer.parseInt(queue[1]), key);
            PutMessageResult result = store.putMessage(message);
            if (!result.isOk()) {
                throw new Main.Failure("a put ended with " + result.getPutMessageStatus());
            }
            AppendMessageResult appended = result.getAppendMessageResult();
            all.add(String.format(Locale.ROOT, "[\"%s\", %d, %d, %d, %d, \"%s\"]", hex(message.getTopic()), message.getQueueId(),
                appended.getLogicsOffset(), appended.getWroteOffset(), message.getSysFlag(), key));
        }
        return "[" + String.join(", ", all) + "]";
    }

    private BrokerMessage message(String topic, int queue, String key) throws UnknownHostException {
        BrokerMessage message = new BrokerMessage();
        message.setTopic(topic);
        message.setQueueId(queue);
        String properties = "UNIQ_KEY\u0001" + key + "\u0002KEYS\u0001put-" + random.nextInt(100) + " k" + key + "\u0002";
        if (random.nextBoolean()) {
            properties += "TAGS\u0001" + TAGS[random.nextInt(TAGS.length)] + "\u0002";
        }
        int kind = random.nextInt(10);
        if (kind == 0) {
            // As the broker turns a delayed message into one of the schedule topic.
            int level = random.nextInt(1, DELAY_LEVELS + 1);
            message.setTopic("SCHEDULE_TOPIC_XXXX");
            message.setQueueId(level - 1);
            properties += "DELAY\u0001" + level + "\u0002REAL_TOPIC\u0001" + topic + "\u0002REAL_QID\u0001" + queue + "\u0002";
        } else if (kind <= 2) {
            message.setSysFlag(STATES[random.nextInt(STATES.length)]);
        }
        message.setPropertiesString(properties);
        MessageAccessor.setProperties(message, MessageDecoder.string2messageProperties(properties));
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(host());
        message.setStoreHost(host());
        byte[] body = new byte[random.nextInt(BODY_MAX)];
        random.nextBytes(body);
        message.setBody(body);
        return message;
    }

    private static InetSocketAddress host() throws UnknownHostException {
        return new InetSocketAddress(InetAddress.getByAddress(new byte[] {10, 0, 0, 1}), 10_911);
    }

    /** Where the messages lie that the store finds, a list for each pair of topic and key, both as hex of UTF-8. */
    static String find(OracleStore store, List<String> words) {
        List<String> all = new ArrayList<>();
        for (int i = 0; i < words.size(); i += 2) {
            // A store time may be spoilt.
            QueryMessageResult result = store.queryMessage(
                text(words.get(i)), text(words.get(i + 1)), MOST_FOUND, Long.MIN_VALUE, Long.MAX_VALUE);
            List<String> places = new ArrayList<>();
            for (ByteBuffer message : result.getMessageBufferList()) {
                places.add(Long.toString(message.getLong(PHYSICAL_OFFSET)));
            }
            result.release();
            all.add("[" + String.join(", ", places) + "]");
        }
        return "[" + String.join(", ", all) + "]";
    }

    private static String text(String hexed) {
        return new String(HexFormat.of().parseHex(hexed), StandardCharsets.UTF_8);
    }

    private static String hex(String text) {
        return HexFormat.of().formatHex(text.getBytes(StandardCharsets.UTF_8));
    }
}
