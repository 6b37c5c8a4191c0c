package oracle;

import java.io.ByteArrayOutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.SplittableRandom;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;

/** The messages of a scenario, as they are handed to the store. */
final class RandomMessages {
    private static final int[] STATES = {
        MessageSysFlag.TRANSACTION_PREPARED_TYPE, MessageSysFlag.TRANSACTION_COMMIT_TYPE, MessageSysFlag.TRANSACTION_ROLLBACK_TYPE};
    private static final int[] COMPRESSIONS = {0x1, 0x101, 0x201, 0x301, 0x2};
    private static final String[] BATCH_PROPERTIES = {"KEYS", "TAGS", "own"};
    private static final byte[][] MALFORMED = {
        {(byte) 0xed, (byte) 0xa0, (byte) 0x80}, {(byte) 0xc0, (byte) 0x80}, {(byte) 0xf0, (byte) 0x9f, (byte) 0x98},
        {(byte) 0xff}, {'a', (byte) 0xe2, (byte) 0x82}, {(byte) 0xf4, (byte) 0x90, (byte) 0x80, (byte) 0x80},
        {(byte) 0xf8, (byte) 0x88}, {(byte) 0x80, (byte) 0x80}, {(byte) 0xe0, (byte) 0x9f, (byte) 0xbf}};
    /** Of a record with hosts of 8 bytes: what comes before its body. */
    private static final int BODY_START = 88;
    private static final int PHYSICAL_OFFSET = 28;
    private static final InetSocketAddress[] HOSTS = {
        host("10.0.0.7", 40_112), host("10.0.0.1", 10_911), host("2001:db8::1", 80), host("fe80::9", 10_911)};

    private final Plan plan;
    private final SplittableRandom random;
    private final ScenarioClock clock;
    private final Words words;

    RandomMessages(Plan plan, SplittableRandom random, ScenarioClock clock) {
        this.plan = plan;
        this.random = random;
        this.clock = clock;
        words = new Words(plan, random);
    }

    String topic() {
        return words.topic();
    }

    int queue() {
        return random.nextInt(plan.queues());
    }

    /**
     * Any message.
     *
     * @param end where the log ends
     * @param earlier a record of this log, or null
     */
    BrokerMessage next(long end, byte[] earlier) {
        BrokerMessage message = new BrokerMessage();
        envelope(message, words.topic());
        message.setBody(body(end, earlier));
        String properties = words.properties();
        if (plan.has(Feature.TRANSACTIONS) && random.nextInt(4) == 0) {
            message.setSysFlag(STATES[random.nextInt(STATES.length)]);
            message.setPreparedTransactionOffset(random.nextInt(1_000));
        }
        if (random.nextInt(8) == 0) {
            message.setSysFlag(message.getSysFlag() | COMPRESSIONS[random.nextInt(COMPRESSIONS.length)]);
        }
        if (plan.has(Feature.DELAYS) && random.nextInt(6) == 0) {
            if (random.nextInt(5) != 0) {
                message.setTopic("SCHEDULE_TOPIC_XXXX");
            }
            properties = words.delayed(properties);
        }
        message.setPropertiesString(properties);
        if (plan.has(Feature.LMQ) && random.nextInt(4) == 0) {
            // The store itself adds the offsets to these.
            Map<String, String> map = MessageDecoder.string2messageProperties(properties);
            map.forEach((name, value) -> MessageAccessor.putProperty(message, name, value));
            message.setDelayTimeLevel(0);
            message.getProperties().remove(MessageConst.PROPERTY_DELAY_TIME_LEVEL);
            MessageAccessor.putProperty(message, MessageConst.PROPERTY_INNER_MULTI_DISPATCH, words.lightQueues());
            message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        }
        return message;
    }

    /** A message with so many keys, each indexed. */
    BrokerMessage keyed(int keys) {
        BrokerMessage message = new BrokerMessage();
        envelope(message, "orders");
        message.setBody(new byte[] {1});
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < keys; i++) {
            text.append(i == 0 ? "" : " ").append("f").append(random.nextInt(1_000));
        }
        message.setPropertiesString(keys == 0 ? "" : "KEYS\u0001" + text + "\u0002");
        return message;
    }

    MessageExtBatch batch() {
        MessageExtBatch batch = new MessageExtBatch();
        envelope(batch, words.topic());
        if (random.nextInt(3) == 0) {
            MessageAccessor.putProperty(batch, BATCH_PROPERTIES[random.nextInt(BATCH_PROPERTIES.length)], "of-the-batch");
        }
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        for (int i = random.nextInt(1, 12); i > 0; i--) {
            byte[] body = new byte[random.nextInt(1, 200)];
            random.nextBytes(body);
            byte[] properties = batchProperties();
            ByteBuffer one = ByteBuffer.allocate(22 + body.length + properties.length);
            one.putInt(one.capacity()).putInt(0).putInt(0).putInt(random.nextInt(9)).putInt(body.length).put(body);
            one.putShort((short) properties.length).put(properties);
            bytes.writeBytes(one.array());
        }
        batch.setBody(bytes.toByteArray());
        return batch;
    }

    private byte[] batchProperties() {
        byte[] properties = words.properties().getBytes(StandardCharsets.UTF_8);
        if (plan.has(Feature.KEYLESS) || random.nextInt(4) != 0) {
            return properties;
        }
        byte[] bad = MALFORMED[random.nextInt(MALFORMED.length)];
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        bytes.writeBytes((random.nextBoolean() ? "KEYS\u0001m" : "TAGS\u0001m").getBytes(StandardCharsets.UTF_8));
        bytes.writeBytes(bad);
        bytes.writeBytes((random.nextBoolean() ? "z\u0002" : "\u0002").getBytes(StandardCharsets.UTF_8));
        bytes.writeBytes(properties);
        return bytes.toByteArray();
    }

    private void envelope(MessageExt message, String topic) {
        MessageAccessor.setProperties(message, new HashMap<>());
        message.setTopic(topic);
        message.setQueueId(queue());
        message.setFlag(random.nextInt(-5, 5));
        message.setBornTimestamp(clock.now() - random.nextInt(9_999));
        message.setReconsumeTimes(random.nextInt(3));
        message.setBornHost(plan.has(Feature.IPV6) && random.nextBoolean() ? HOSTS[2] : HOSTS[0]);
        message.setStoreHost(plan.has(Feature.IPV6) && random.nextInt(3) == 0 ? HOSTS[3] : HOSTS[1]);
    }

    private byte[] body(long end, byte[] earlier) {
        if (plan.has(Feature.RECORD_BODIES) && earlier != null && random.nextInt(3) == 0) {
            return records(end, earlier);
        }
        int length = random.nextInt(random.nextInt(10, 700));
        if (plan.has(Feature.ODD_BODIES) && random.nextInt(8) == 0) {
            length = random.nextInt(4) == 0 ? random.nextInt(plan.segmentSize() / 3) : 0;
        }
        byte[] body = new byte[length];
        random.nextBytes(body);
        return body;
    }

    /** An earlier record, some times: each tells its true place in one body of two, were it no body. */
    private byte[] records(long end, byte[] earlier) {
        boolean truthful = random.nextBoolean();
        byte[] lead = new byte[random.nextInt(9)];
        ByteBuffer body = ByteBuffer.allocate(lead.length + earlier.length * random.nextInt(1, 4));
        body.put(lead);
        while (body.hasRemaining()) {
            int at = body.position();
            body.put(earlier);
            body.putLong(at + PHYSICAL_OFFSET, truthful ? end + BODY_START + at : random.nextInt(1 << 30));
        }
        return body.array();
    }

    private static InetSocketAddress host(String address, int port) {
        try {
            return new InetSocketAddress(InetAddress.getByName(address), port);
        } catch (UnknownHostException e) {
            throw new AssertionError("an address needs no look-up", e);
        }
    }
}
