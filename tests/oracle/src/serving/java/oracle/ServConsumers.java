package oracle;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.Callable;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.exception.RemotingException;

/** RocketMQ's own consumers, each telling all that it was given: lines of topic, queue, queue offset, physical offset, contents. */
final class ServConsumers {
    private static final Comparator<MessageQueue> ORDER =
        Comparator.comparing(MessageQueue::getTopic).thenComparing(MessageQueue::getQueueId);

    /** Milliseconds; a new group waits for its first assignment, one that pops up to 20 s. */
    private static final int LONG = 120_000;
    private static final int STEP = 100;
    private static final int TRIES = 10;
    /** ResponseCode.NO_MESSAGE: 4.9 and 5.x keep the class in different packages. */
    static final int NO_MESSAGE = 208;

    private ServConsumers() {
    }

    /**
     * One pull after another from each queue's begin to its end. The lines tell what was asked for and answered, too:
     * topic, queue, offset asked for, status, next offset, then queue offset and physical offset of each message. Nobody
     * asks a slave where a queue begins: its queues are read from 0 on.
     */
    @SuppressWarnings("deprecation")  // The one client that hands out each answer as it comes.
    static List<String> pull(String nameServer, List<String> topics, String tags, int batch, boolean slave)
        throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("pulling");
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(nameServer + System.nanoTime());
        consumer.start();
        try {
            List<String> lines = new ArrayList<>();
            for (String topic : topics) {
                for (MessageQueue queue : sorted(patiently(() -> consumer.fetchSubscribeMessageQueues(topic)))) {
                    long offset = slave ? 0 : patiently(() -> consumer.minOffset(queue));
                    for (boolean more = true; more; ) {
                        long from = offset;
                        PullResult result = patiently(() -> consumer.pull(queue, tags, from, batch));
                        StringBuilder line = new StringBuilder(topic + "\t" + queue.getQueueId() + "\t" + offset + "\t"
                            + result.getPullStatus() + "\t" + result.getNextBeginOffset());
                        for (MessageExt message : found(result)) {
                            line.append('\t').append(message.getQueueOffset()).append('\t').append(message.getCommitLogOffset());
                        }
                        lines.add(line.toString());
                        more = result.getPullStatus() != PullStatus.NO_NEW_MSG && result.getNextBeginOffset() != offset;
                        offset = result.getNextBeginOffset();
                    }
                }
            }
            return lines;
        } finally {
            consumer.shutdown();
        }
    }

    /**
     * DefaultLitePullConsumer, assigned all queues, polled until {@code due} messages came, or none for LONG, and then
     * nothing more for {@code quiet} milliseconds.
     */
    static List<String> lite(String nameServer, List<String> topics, int due, int quiet) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("lite");
        // Not seekToBegin: the pulls of a queue begin when it is assigned, and would go on beside those from its begin.
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(nameServer + System.nanoTime());
        consumer.setAutoCommit(true);
        consumer.start();
        try {
            List<MessageQueue> queues = new ArrayList<>();
            for (String topic : topics) {
                queues.addAll(patiently(() -> consumer.fetchMessageQueues(topic)));
            }
            consumer.assign(queues);
            List<String> lines = new ArrayList<>();
            List<MessageExt> some;
            do {
                some = consumer.poll(lines.size() < due ? LONG : quiet);
                some.forEach(message -> lines.add(line(message)));
            } while (!some.isEmpty());
            return lines;
        } finally {
            consumer.shutdown();
        }
    }

    /**
     * DefaultMQPushConsumer from the first offset on, in {@code group}, until {@code due} messages came, or none for LONG,
     * and then nothing more for {@code quiet} milliseconds.
     */
    static List<String> push(
        String nameServer, List<String> topics, String group, boolean pop, MessageSelector selector, int due, int quiet)
        throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(nameServer + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        Settings.set(consumer, "popInvisibleTime=10000,clientRebalance=" + !pop);
        for (String topic : topics) {
            consumer.subscribe(topic, selector);
        }
        List<String> lines = Collections.synchronizedList(new ArrayList<>());
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> lines.add(line(message)));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            int before = -1;
            for (int waited = 0; waited < (before < due ? LONG : quiet); waited = before == lines.size() ? waited + STEP : 0) {
                before = lines.size();
                Thread.sleep(STEP);
            }
        } finally {
            consumer.shutdown();
        }
        return new ArrayList<>(lines);
    }

    /**
     * Consumes a topic until the program ends; gives each message back {@code times} times, to come again after a delay
     * level. Each message that comes adds a line to the file {@code told}, if that is not null: UNIQ_KEY, reconsume times,
     * done or again. With {@code pop} only every third message, by its UNIQ_KEY, is given back.
     */
    static void again(
        String nameServer, String group, String topic, int level, int times, boolean pop, boolean traced, Path told)
        throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
            group, null, new AllocateMessageQueueAveragely(), traced, null);
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(nameServer + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        Settings.set(consumer, "popInvisibleTime=10000,clientRebalance=" + !pop);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt message = messages.get(0);
            String key = message.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX);
            boolean done = message.getReconsumeTimes() >= times || pop && Math.floorMod(key.hashCode(), 3) != 0;
            if (told != null) {
                try {
                    Files.writeString(told, key + "\t" + message.getReconsumeTimes() + "\t" + (done ? "done" : "again") + "\n",
                        StandardOpenOption.CREATE, StandardOpenOption.APPEND);
                } catch (IOException e) {
                    throw new UncheckedIOException(e);
                }
            }
            context.setDelayLevelWhenNextConsume(level);
            return done ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
    }

    /**
     * The answer to a question. It is asked again where the network, the name server or the broker did not answer in time, or
     * was busy and closed the connection: of most of these clients say only that there is no such queue or broker.
     */
    static <T> T patiently(Callable<T> question) throws Exception {
        for (int tries = 1; ; tries++) {
            try {
                return question.call();
            } catch (MQBrokerException | MQClientException | RemotingException e) {
                boolean answered = e instanceof MQClientException none && none.getResponseCode() == NO_MESSAGE;
                if (answered || tries == TRIES) {
                    throw e;
                }
                Thread.sleep(200);
            }
        }
    }

    private static List<MessageExt> found(PullResult result) {
        return result.getMsgFoundList() == null ? List.of() : result.getMsgFoundList();
    }

    private static List<MessageQueue> sorted(Collection<MessageQueue> queues) {
        return queues.stream().sorted(ORDER).toList();
    }

    private static String line(MessageExt message) {
        return message.getTopic() + "\t" + message.getQueueId() + "\t" + message.getQueueOffset() + "\t"
            + message.getCommitLogOffset() + "\t" + contents(message);
    }

    /** A number for all that a message is by itself, wherever it lies: not what a client or a broker says of its place. */
    private static String contents(MessageExt message) {
        Map<String, String> properties = new TreeMap<>(message.getProperties());
        properties.keySet().removeAll(List.of(
            MessageConst.PROPERTY_MIN_OFFSET, MessageConst.PROPERTY_MAX_OFFSET, MessageConst.PROPERTY_CONSUME_START_TIMESTAMP,
            "CLUSTER", "__CRC32#"));
        String text = properties + "\t" + message.getFlag() + "\t" + message.getBornTimestamp() + "\t" + message.getBornHost()
            + "\t" + message.getStoreTimestamp() + "\t" + message.getStoreHost() + "\t" + message.getReconsumeTimes() + "\t"
            + Arrays.toString(message.getBody());
        return UUID.nameUUIDFromBytes(text.getBytes(StandardCharsets.UTF_8)).toString();
    }
}
