package oracle;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.TlsSystemConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * A broker on a store that a test names, with a name server of its own; consumers and an admin ask them. The next boot has
 * new ones: whatever is left of those before, nobody can meet it.
 */
final class Serve {
    private final Path scratch = Path.of(System.getProperty("user.home"));
    private String nameServer;
    private ServBroker broker;
    private ServAdmin admin;
    private String name;

    private Serve() {
    }

    public static void main(String[] argv) {
        Main.run("usage: Serve   (steps on stdin: boot, pull, lite, push, pop, find, time, send, state, stop)", () -> {
            // As BrokerStartup and NamesrvStartup do: who names no version is taken for one of 2012.
            System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
            // Keys and certificates that nobody asks for cost seconds.
            System.setProperty(TlsSystemConfig.TLS_SERVER_MODE, "disabled");
            Serve serve = new Serve();
            CrashSteps.run(Map.of(
                "boot", words -> serve.boot(words.get(0), Path.of(words.get(1)), words.subList(2, words.size())),
                "pull", words -> write(words.get(0), ServConsumers.pull(
                    serve.nameServer, serve.broker.topics(), words.get(1), Integer.parseInt(words.get(2)),
                    serve.broker.isSlave())),
                "lite", words -> write(words.get(0), ServConsumers.lite(
                    serve.nameServer, serve.broker.topics(), Integer.parseInt(words.get(1)), Integer.parseInt(words.get(2)))),
                "push", words -> write(words.get(0), ServConsumers.push(
                    serve.nameServer, serve.broker.topics(), words.size() > 3 ? words.get(3) : "pushing", false,
                    words.size() > 3 ? MessageSelector.bySql(words.get(4)) : MessageSelector.byTag("*"),
                    Integer.parseInt(words.get(1)), Integer.parseInt(words.get(2)))),
                "pop", words -> serve.pop(words.get(0), Integer.parseInt(words.get(1)), Integer.parseInt(words.get(2))),
                "find", words -> String.valueOf(serve.admin.find(Path.of(words.get(0)), Path.of(words.get(1)))),
                "time", words -> String.valueOf(serve.admin.offsetOf(
                    words.get(0), serve.name, Integer.parseInt(words.get(1)), Long.parseLong(words.get(2)))),
                "send", words -> ServProducer.send(
                    serve.nameServer, new MessageQueue(words.get(0), serve.name, Integer.parseInt(words.get(1))), words.get(2),
                    Integer.parseInt(words.get(3))),
                "state", words -> serve.state(words),
                "stop", words -> serve.stop(!words.isEmpty())), 1800);
        });
    }

    /** Answers where the broker sees the log's end, and the topics it knows. */
    private String boot(String brokerName, Path root, List<String> options) throws Exception {
        NamesrvController nameServers = ServBroker.nameServer(scratch);
        Args args = new Args(options.toArray(new String[0]),
            Set.of("segment-size", "cq-file-size", "hash-slots", "index-items", "set", "name-server"),
            Set.of("enable-lmq", "timer-wheel"));
        nameServer = args.text("name-server", ServBroker.address(nameServers));
        name = brokerName;
        broker = ServBroker.boot(name, root, args, nameServers);
        admin = new ServAdmin(nameServer);
        // A slave gets more meanwhile, and may never dispatch it.
        while (!broker.isSlave() && broker.behind() > 0) {
            Thread.sleep(5);
        }
        return broker.end() + " " + String.join(" ", broker.topics());
    }

    /** Answers where it is; with a folder it writes its config there, of groups at offsets where words name these. */
    private String state(List<String> words) throws Exception {
        for (int i = 1; i + 3 < words.size(); i += 4) {
            broker.commit(words.get(i), words.get(i + 1), Integer.parseInt(words.get(i + 2)), Long.parseLong(words.get(i + 3)));
        }
        if (!words.isEmpty()) {
            broker.writeConfig(Path.of(words.get(0)));
        }
        return broker.end() + " " + broker.behind() + " " + broker.haPort();
    }

    private String pop(String file, int due, int quiet) throws Exception {
        for (String topic : broker.topics()) {
            admin.popMode(broker.address(), topic, "popping");
        }
        return write(file, ServConsumers.push(
            nameServer, broker.topics(), "popping", true, MessageSelector.byTag("*"), due, quiet));
    }

    /** Answers at once: a shutdown is seconds of sleep, and nothing asks this broker any more. Who wants its files waits. */
    private String stop(boolean waits) {
        admin.stop();
        if (waits) {
            broker.stop();
            return "stopped";
        }
        new Thread(broker::stop).start();
        return "stopping";
    }

    private static String write(String file, List<String> lines) throws Exception {
        Files.write(Path.of(file), lines);
        return String.valueOf(lines.size());
    }
}
