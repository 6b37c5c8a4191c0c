package oracle;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.trace.TraceBean;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** What RocketMQ's own decoder makes of the trace messages in a broker, as queryMsgTraceById takes it. */
final class ServTraces {
    private static final String TOPIC = "RMQ_SYS_TRACE_TOPIC";

    private ServTraces() {
    }

    /** A line for each trace record: the physical offset of its message, then NAME=VALUE, tabs between them. */
    @SuppressWarnings("deprecation")
    static List<String> read(String nameServer) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("tracing");
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(nameServer + System.nanoTime());
        consumer.start();
        try {
            List<String> lines = new ArrayList<>();
            for (MessageQueue queue : ServConsumers.patiently(() -> consumer.fetchSubscribeMessageQueues(TOPIC))) {
                long offset = 0;
                while (true) {
                    long from = offset;
                    PullResult result = ServConsumers.patiently(() -> consumer.pull(queue, "*", from, 32));
                    if (result.getPullStatus() != PullStatus.FOUND) {
                        break;
                    }
                    for (MessageExt message : result.getMsgFoundList()) {
                        String body = new String(message.getBody(), StandardCharsets.UTF_8);
                        for (TraceContext trace : TraceDataEncoder.decoderFromTraceDataString(body)) {
                            lines.add(message.getCommitLogOffset() + line(trace));
                        }
                    }
                    offset = result.getNextBeginOffset();
                }
            }
            return lines;
        } finally {
            consumer.shutdown();
        }
    }

    private static String line(TraceContext trace) {
        TraceBean bean = trace.getTraceBeans().get(0);
        return field("traceType", trace.getTraceType()) + field("timeStamp", trace.getTimeStamp())
            + field("regionId", trace.getRegionId()) + field("groupName", trace.getGroupName())
            + field("requestId", trace.getRequestId()) + field("costTime", trace.getCostTime())
            + field("success", trace.isSuccess()) + field("contextCode", trace.getContextCode())
            + field("topic", bean.getTopic()) + field("msgId", bean.getMsgId()) + field("tags", bean.getTags())
            + field("keys", bean.getKeys()) + field("storeHost", bean.getStoreHost())
            + field("bodyLength", bean.getBodyLength()) + field("msgType", bean.getMsgType())
            + field("offsetMsgId", bean.getOffsetMsgId()) + field("retryTimes", bean.getRetryTimes())
            + field("transactionId", bean.getTransactionId()) + field("transactionState", bean.getTransactionState())
            + field("fromTransactionCheck", bean.isFromTransactionCheck());
    }

    private static String field(String name, Object value) {
        return "\t" + name + "=" + value;
    }
}
