package oracle;

import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.util.Arrays;
import java.util.SplittableRandom;
import org.apache.rocketmq.common.SystemClock;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;

/** An endless row of messages, and the clock by which they are stored: both depend on the seed alone. */
final class Messages extends SystemClock {
    private static final long START = 1_700_000_000_000L;
    private static final String[] TAGS = {"created", "paid", "packed", "shipped", "delivered", "returned", "closed"};
    // What a client would put first in its message ids: its address, process and class loader.
    private static final String CLIENT = "0A0000071F2E5B4C6D70";
    private static final char[] HEX = "0123456789ABCDEF".toCharArray();

    private final Preset preset;
    private final SplittableRandom random;
    private final String[] topics;
    private final long[] queueOffsets;
    private final byte[] pool = new byte[4 << 20];
    private final InetSocketAddress client = address(10, 0, 0, 7, 40_112);
    private final InetSocketAddress broker = address(10, 0, 0, 1, 10_911);
    private long number = -1;

    Messages(Preset preset, long seed) {
        this.preset = preset;
        random = new SplittableRandom(seed);
        topics = new String[preset.topics()];
        Arrays.setAll(topics, preset::topic);
        queueOffsets = new long[preset.topics() * preset.queues()];
        for (int i = 0; i < pool.length; i++) {
            pool[i] = (byte) random.nextInt(' ', 127);
        }
    }

    /** The store time of the latest message. */
    @Override
    public long now() {
        return START + Math.max(0, number) * 1000 / preset.perSecond();
    }

    BrokerMessage next() {
        number++;
        BrokerMessage message = new BrokerMessage();
        int queue = random.nextInt(queueOffsets.length);
        message.setTopic(topics[queue / preset.queues()]);
        message.setQueueId(queue % preset.queues());
        message.setQueueOffset(queueOffsets[queue]++);
        long born = now() - random.nextInt(20);
        message.setBornTimestamp(born);
        message.setStoreTimestamp(now());
        message.setBornHost(client);
        message.setStoreHost(broker);
        message.setBody(body());

        String tags = TAGS[random.nextInt(TAGS.length)];
        message.setTags(tags);
        message.setTagsCode(tags.hashCode());
        message.setKeys(preset.keys().of(number, random));
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, uniqKey(born));
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        return message;
    }

    private byte[] body() {
        int spread = preset.bodyBytes() / 8;
        int length = random.nextInt(preset.bodyBytes() - spread, preset.bodyBytes() + spread + 1);
        int from = random.nextInt(pool.length - length);
        return Arrays.copyOfRange(pool, from, from + length);
    }

    /** 32 hex digits, as a client makes them: itself, milliseconds since its start, a counter of 16 bits. */
    private String uniqKey(long born) {
        char[] id = Arrays.copyOf(CLIENT.toCharArray(), 32);
        hex(id, 20, 8, born - START + 20);
        hex(id, 28, 4, number);
        return new String(id);
    }

    private static void hex(char[] into, int from, int digits, long value) {
        for (int i = 0; i < digits; i++) {
            into[from + i] = HEX[(int) (value >>> 4 * (digits - 1 - i)) & 15];
        }
    }

    private static InetSocketAddress address(int a, int b, int c, int d, int port) {
        try {
            return new InetSocketAddress(
                InetAddress.getByAddress(new byte[] {(byte) a, (byte) b, (byte) c, (byte) d}), port);
        } catch (UnknownHostException e) {
            throw new AssertionError("four bytes are an address", e);
        }
    }
}
