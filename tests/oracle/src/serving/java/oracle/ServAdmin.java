package oracle;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.remoting.protocol.ResponseCode;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** What an operator asks a broker: which messages have a key, and where in a queue a time lies. */
final class ServAdmin {
    /** As many as a broker gives to one question: maxMsgsNumBatch. */
    private static final int MOST_FOUND = 64;

    private static final int ROUNDS = 3;

    private final DefaultMQAdminExt admin = new DefaultMQAdminExt();

    ServAdmin(String nameServer) throws MQClientException {
        admin.setNamesrvAddr(nameServer);
        admin.setInstanceName(nameServer + System.nanoTime());
        admin.setAdminExtGroup("admin-" + System.nanoTime());
        admin.start();
    }

    /**
     * Questions are lines of topic, kind ({@code key} or {@code id}, for a UNIQ_KEY), key. An answer is a line of physical
     * offsets. Returns how many of them found something.
     */
    int find(Path questions, Path answers) throws Exception {
        List<String> lines = Files.readAllLines(questions);
        String[] found = new String[lines.size()];
        Arrays.fill(found, "");
        // The client tells a question that failed on its way like one without an answer: all of these are asked again.
        for (int round = 0; round < ROUNDS; round++) {
            Thread.sleep(round * 300L);
            for (int number = 0; number < found.length; number++) {
                if (found[number].isEmpty()) {
                    String[] words = lines.get(number).split("\t", 3);
                    found[number] = find(words[0], words[2], words[1].equals("id")).stream()
                        .map(message -> Long.toString(message.getCommitLogOffset())).collect(Collectors.joining(","));
                }
            }
        }
        Files.write(answers, List.of(found));
        return (int) Arrays.stream(found).filter(answer -> !answer.isEmpty()).count();
    }

    private List<MessageExt> find(String topic, String key, boolean unique) throws Exception {
        try {
            QueryResult result = ServConsumers.patiently(() -> unique
                ? admin.queryMessageByUniqKey(null, topic, key, MOST_FOUND, 0, Long.MAX_VALUE)
                : admin.queryMessage(topic, key, MOST_FOUND, 0, Long.MAX_VALUE));
            return result.getMessageList();
        } catch (MQClientException e) {
            if (e.getResponseCode() == ResponseCode.NO_MESSAGE) {
                return List.of();
            }
            throw e;
        }
    }

    /** Where a broker would begin to consume a queue from a store time on. */
    long offsetOf(String topic, String brokerName, int queueId, long time) throws Exception {
        return ServConsumers.patiently(() -> admin.searchOffset(new MessageQueue(topic, brokerName, queueId), time));
    }

    /** From now on the group's push consumers pop. */
    void popMode(String address, String topic, String group) throws Exception {
        admin.setMessageRequestMode(address, topic, group, MessageRequestMode.POP, 0, 5000);
    }

    void stop() {
        admin.shutdown();
    }
}
