package oracle;

import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageQueue;

/** RocketMQ's own producer. */
final class ServProducer {
    private ServProducer() {
    }

    /** Sends messages with the keys PREFIX-0, PREFIX-1, ... and the tag PREFIX to one queue; answers their physical offsets. */
    static String send(String nameServer, MessageQueue queue, String prefix, int count) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("producing");
        producer.setNamesrvAddr(nameServer);
        producer.setInstanceName(nameServer + System.nanoTime());
        producer.start();
        try {
            StringBuilder offsets = new StringBuilder();
            for (int i = 0; i < count; i++) {
                byte[] body = ("sent later: " + i).getBytes(StandardCharsets.UTF_8);
                Message message = new Message(queue.getTopic(), prefix, prefix + "-" + i, body);
                SendResult result = ServConsumers.patiently(() -> producer.send(message, queue));
                if (result.getSendStatus() != SendStatus.SEND_OK) {
                    throw new Main.Failure("message " + i + ": " + result.getSendStatus());
                }
                offsets.append(i == 0 ? "" : ",").append(MessageDecoder.decodeMessageId(result.getOffsetMsgId()).getOffset());
            }
            return offsets.toString();
        } finally {
            producer.shutdown();
        }
    }

    /**
     * Sends what {@code lines} say: milliseconds to wait before, topic, queue, tag, then properties as NAME=VALUE. Those of
     * the broker are allowed, too: UNIQ_KEY, DELAY, TIMER_DELIVER_MS and the like. With {@code traced} it writes traces.
     */
    static void sendLines(String nameServer, String brokerName, List<String> lines, boolean traced) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("producing", null, traced, null);
        producer.setNamesrvAddr(nameServer);
        producer.setInstanceName(nameServer + System.nanoTime());
        producer.start();
        try {
            for (String line : lines) {
                String[] words = line.split("\t");
                Thread.sleep(Long.parseLong(words[0]));
                Message message = new Message(words[1], words[3], line.getBytes(StandardCharsets.UTF_8));
                for (String property : List.of(words).subList(4, words.length)) {
                    int equals = property.indexOf('=');
                    MessageAccessor.putProperty(message, property.substring(0, equals), property.substring(equals + 1));
                }
                MessageQueue queue = new MessageQueue(words[1], brokerName, Integer.parseInt(words[2]));
                try {
                    ServConsumers.patiently(() -> producer.send(message, queue));
                } catch (MQBrokerException e) {
                    // A broker refuses a delete mark whose time has come.
                    if (message.getProperty("TIMER_DEL_UNIQKEY") == null) {
                        throw e;
                    }
                }
            }
        } finally {
            producer.shutdown();
        }
    }
}
