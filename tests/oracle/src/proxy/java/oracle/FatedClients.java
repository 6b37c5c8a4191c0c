package oracle;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.consumer.DefaultMQPushConsumerImpl;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;

/**
 * RocketMQ's own producer and consumers, whose messages say what shall become of them. What each client sees is a line of a
 * file before it goes on, tabs between the words:
 * {@code sent HOW KEY TOPIC BROKER QUEUE OFFSET STATUS}, {@code failed HOW KEY REASON}, {@code recalled KEY},
 * {@code decided KEY STATE}, {@code got GROUP KEY TIMES DECISION}.
 */
final class FatedClients {
    /** A property: how often consumers give a message back, or {@code dead} for at once to the dead letters. */
    private static final String FATE = "FATE";
    private static final String DECISION = "DECISION";
    private static final String CHECKED = "CHECKED";

    private final Map<String, DefaultMQPushConsumer> consumers = new LinkedHashMap<>();
    private final List<Thread> reading = new ArrayList<>();
    private final TransactionMQProducer producer = new TransactionMQProducer("producing", null, true, null);
    private final String nameServer;
    private final Path journal;

    FatedClients(String nameServer, Path journal) throws MQClientException {
        this.nameServer = nameServer;
        this.journal = journal;
        producer.setNamesrvAddr(nameServer);
        producer.setInstanceName(nameServer + System.nanoTime());
        producer.setHeartbeatBrokerInterval(500);
        // Sent again after a time-out a message would lie there twice.
        producer.setSendMsgTimeout(60_000);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return decide(message, DECISION);
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return decide(message, CHECKED);
            }
        });
        producer.start();
    }

    private LocalTransactionState decide(Message message, String property) {
        String word = message.getUserProperty(property);
        note("decided", key(message), word);
        return LocalTransactionState.valueOf(word.equals("unknow") ? "UNKNOW" : word.toUpperCase(Locale.ROOT) + "_MESSAGE");
    }

    /**
     * Lines of milliseconds to wait before, how (queue, order, any, transact or recall), topic, broker, queue, then properties
     * as NAME=VALUE, those of the broker, too. Each is sent once: where no answer comes, nobody knows.
     */
    void send(List<String> lines) {
        for (String line : lines) {
            String[] words = line.split("\t");
            Message message = new Message(words[2], "tag", line.getBytes(StandardCharsets.UTF_8));
            for (String property : List.of(words).subList(5, words.length)) {
                int equals = property.indexOf('=');
                MessageAccessor.putProperty(message, property.substring(0, equals), property.substring(equals + 1));
            }
            String how = words[1];
            try {
                Thread.sleep(Long.parseLong(words[0]));
                SendResult found = switch (how) {
                    case "transact" -> producer.sendMessageInTransaction(message, null);
                    case "order" -> producer.send(message, new SelectMessageQueueByHash(), words[4]);
                    case "any" -> producer.send(message);
                    default -> producer.send(message, new MessageQueue(words[2], words[3], Integer.parseInt(words[4])));
                };
                MessageQueue queue = found.getMessageQueue();
                note("sent", how, key(message), words[2], queue.getBrokerName(), queue.getQueueId(), found.getQueueOffset(),
                    found.getSendStatus());
                if (how.equals("recall")) {
                    note("recalling", key(message));
                    producer.recallMessage(words[2], found.getRecallHandle());
                    note("recalled", key(message));
                }
            } catch (Exception e) {
                note("failed", how, key(message), String.valueOf(e).replaceAll("\\s+", " "));
            }
        }
    }

    /**
     * A consumer from the first offset on. Kind: push, order, broadcast or pop. It obeys the messages' FATE if it is
     * {@code stubborn}, and writes traces if it is {@code traced}.
     */
    void consume(String kind, String group, Set<String> traits, List<String> topics) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
            group, null, new AllocateMessageQueueAveragely(), traits.contains("traced"), null);
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(group + nameServer + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setHeartbeatBrokerInterval(1000);
        consumer.setPersistConsumerOffsetInterval(500);
        consumer.setSuspendCurrentQueueTimeMillis(200);
        // A client looks for the ways of topics each 30 s, and a message that POP puts off stays away for 10 s at least.
        consumer.setPollNameServerInterval(1000);
        Field delays = DefaultMQPushConsumerImpl.class.getDeclaredField("popDelayLevel");
        delays.setAccessible(true);
        Arrays.fill((int[]) delays.get(consumer.getDefaultMQPushConsumerImpl()), 2);
        Settings.set(consumer, "popInvisibleTime=5000,clientRebalance=" + !kind.equals("pop"));
        if (kind.equals("broadcast")) {
            consumer.setMessageModel(MessageModel.BROADCASTING);
        }
        for (String topic : topics) {
            consumer.subscribe(topic, "*");
        }
        boolean stubborn = traits.contains("stubborn");
        if (kind.equals("order")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                seen(group, messages.get(0), stubborn).equals("done")
                    ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                String decision = seen(group, messages.get(0), stubborn);
                context.setDelayLevelWhenNextConsume(decision.equals("dead") ? -1 : 1);
                return decision.equals("done") ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
            });
        }
        consumer.start();
        consumers.put(group, consumer);
    }

    /**
     * Reads light queues from their first message on, until the end. After each answer it tells the broker where it stands, as
     * a client that reads such a queue does (MQTT's proxy). {@code topic} is one whose way leads to the brokers.
     */
    @SuppressWarnings("deprecation")  // The one client that asks a broker for a queue that no name server knows.
    void readLight(String group, String topic, List<String> brokers, List<String> queues) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(group + nameServer + System.nanoTime());
        consumer.start();
        MQClientInstance client = consumer.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory();
        client.updateTopicRouteInfoFromNameServer(topic);
        Thread one = new Thread(() -> {
            Map<MessageQueue, Long> next = new LinkedHashMap<>();
            brokers.forEach(broker -> queues.forEach(queue -> next.put(new MessageQueue(queue, broker, 0), 0L)));
            while (!Thread.currentThread().isInterrupted()) {
                for (MessageQueue queue : List.copyOf(next.keySet())) {
                    try {
                        next.put(queue, readOn(consumer, group, queue, next.get(queue)));
                        Thread.sleep(50);
                    } catch (InterruptedException ended) {
                        Thread.currentThread().interrupt();
                        break;
                    } catch (Exception notNow) {
                        // A broker that is not ready, or not there, is asked again.
                        notNow.printStackTrace();
                        client.updateTopicRouteInfoFromNameServer(topic);
                    }
                }
            }
            consumer.shutdown();
        });
        one.setDaemon(true);
        one.start();
        reading.add(one);
    }

    @SuppressWarnings("deprecation")  // As above.
    private long readOn(DefaultMQPullConsumer consumer, String group, MessageQueue queue, long offset) throws Exception {
        PullResult result = consumer.pull(queue, "*", offset, 32);
        if (result.getPullStatus() == PullStatus.FOUND) {
            result.getMsgFoundList().forEach(message -> note("got", group, key(message), message.getReconsumeTimes(), "done"));
        }
        long next = result.getNextBeginOffset();
        if (next > offset) {
            consumer.getDefaultMQPullConsumerImpl().updateConsumeOffset(queue, next);
            consumer.getDefaultMQPullConsumerImpl().getOffsetStore().persist(queue);
        }
        return next;
    }

    private String seen(String group, MessageExt message, boolean stubborn) {
        String fate = stubborn ? message.getUserProperty(FATE) : null;
        String decision = fate == null ? "done" : fate.equals("dead") ? "dead"
            : message.getReconsumeTimes() < Integer.parseInt(fate) ? "again" : "done";
        note("got", group, key(message), message.getReconsumeTimes(), decision);
        return decision;
    }

    /** One consumer ends; its group stays where it is. */
    String end(String group) {
        consumers.remove(group).shutdown();
        return "ended";
    }

    void stop() throws InterruptedException {
        reading.forEach(Thread::interrupt);
        for (Thread one : reading) {
            one.join();
        }
        consumers.values().forEach(DefaultMQPushConsumer::shutdown);
        consumers.clear();
        producer.shutdown();
    }

    private static String key(Message message) {
        return message.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX);
    }

    private synchronized void note(Object... words) {
        StringBuilder line = new StringBuilder();
        for (Object word : words) {
            line.append(line.isEmpty() ? "" : "\t").append(word);
        }
        try {
            Files.writeString(journal, line.append('\n'), StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
