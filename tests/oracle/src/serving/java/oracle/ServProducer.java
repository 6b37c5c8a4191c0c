package oracle;

import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
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
}
