package oracle;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;

/** RocketMQ's own producer of transactions: each message says what its sender decides, and keeps a list of what is asked again. */
final class ServTransactions {
    private static final String DECISION = "DECISION";
    private static final String CHECKED = "CHECKED";

    private final TransactionMQProducer producer = new TransactionMQProducer("transactions");
    private final List<String> checked = Collections.synchronizedList(new ArrayList<>());
    private volatile LocalTransactionState answer = LocalTransactionState.UNKNOW;

    ServTransactions(String nameServer) throws Exception {
        producer.setNamesrvAddr(nameServer);
        producer.setInstanceName(nameServer + System.nanoTime());
        // Only a producer whose heartbeat came is asked.
        producer.setHeartbeatBrokerInterval(500);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return state(message.getUserProperty(DECISION));
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                checked.add(message.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX));
                String own = message.getUserProperty(CHECKED);
                return own == null ? answer : state(own);
            }
        });
        producer.start();
    }

    /**
     * Lines of topic, UNIQ_KEY, what its sender decides at once (commit, rollback or unknow) and, if it is not what all
     * checks get, what a check gets.
     */
    void send(List<String> lines) throws Exception {
        for (String line : lines) {
            String[] words = line.split("\t");
            Message message = new Message(words[0], ("half " + words[1]).getBytes(StandardCharsets.UTF_8));
            MessageAccessor.putProperty(message, MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, words[1]);
            message.putUserProperty(DECISION, words[2]);
            if (words.length > 3) {
                message.putUserProperty(CHECKED, words[3]);
            }
            ServConsumers.patiently(() -> producer.sendMessageInTransaction(message, null));
        }
    }

    /** Sends an ordinary message: a producer that has sent nothing knows no broker. */
    void greet(String topic) throws Exception {
        ServConsumers.patiently(() -> producer.send(new Message(topic, "greeting".getBytes(StandardCharsets.UTF_8))));
    }

    void answer(String word) {
        answer = state(word);
    }

    private static LocalTransactionState state(String word) {
        return LocalTransactionState.valueOf(
            word.equals("unknow") ? "UNKNOW" : word.toUpperCase(Locale.ROOT) + "_MESSAGE");
    }

    /** UNIQ_KEYs, one for each time that the broker asked. */
    List<String> checked() {
        synchronized (checked) {
            return List.copyOf(checked);
        }
    }
}
