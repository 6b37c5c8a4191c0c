package oracle;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.TlsSystemConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** A name server and one broker at a time, each on a store that a test names; consumers and an admin ask them. */
final class Serve {
    private final Path scratch = Path.of(System.getProperty("user.home"));
    private NamesrvController nameServers;
    private String nameServer;
    private ServBroker broker;
    private ServAdmin admin;
    private String name;
    private final List<Thread> stopping = new ArrayList<>();

    private Serve() {
    }

    public static void main(String[] argv) {
        Main.run("usage: Serve   (steps on stdin: boot, pull, lite, push, pop, find, time, stop, ended)", () -> {
            // As BrokerStartup and NamesrvStartup do: who names no version is taken for one of 2012.
            System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
            // Keys and certificates that nobody asks for cost seconds.
            System.setProperty(TlsSystemConfig.TLS_SERVER_MODE, "disabled");
            Serve serve = new Serve();
            CrashSteps.run(Map.of(
                "boot", words -> serve.boot(words.get(0), Path.of(words.get(1)), words.subList(2, words.size())),
                "pull", words -> write(words.get(0), ServConsumers.pull(
                    serve.nameServer, serve.broker.topics(), words.get(1), Integer.parseInt(words.get(2)))),
                "lite", words -> write(words.get(0), ServConsumers.lite(
                    serve.nameServer, serve.broker.topics(), Integer.parseInt(words.get(1)))),
                "push", words -> write(words.get(0), ServConsumers.push(
                    serve.nameServer, serve.broker.topics(), "pushing", false, Integer.parseInt(words.get(1)))),
                "pop", words -> serve.pop(words.get(0), Integer.parseInt(words.get(1))),
                "find", words -> String.valueOf(serve.admin.find(Path.of(words.get(0)), Path.of(words.get(1)))),
                "time", words -> String.valueOf(serve.admin.offsetOf(
                    words.get(0), serve.name, Integer.parseInt(words.get(1)), Long.parseLong(words.get(2)))),
                "stop", words -> serve.stop(),
                "ended", words -> serve.ended()), 300);
        });
    }

    /** Answers where the broker sees the log's end, and the topics it knows. */
    private String boot(String brokerName, Path root, List<String> options) throws Exception {
        if (nameServer == null) {
            nameServers = ServBroker.nameServer(scratch);
            nameServer = ServBroker.address(nameServers);
        }
        Args args = new Args(options.toArray(new String[0]),
            Set.of("segment-size", "cq-file-size", "hash-slots", "index-items"), Set.of("enable-lmq", "timer-wheel"));
        name = brokerName;
        broker = ServBroker.boot(name, root, args, nameServers);
        admin = new ServAdmin(nameServer);
        while (broker.behind() > 0) {
            Thread.sleep(5);
        }
        return broker.end() + " " + String.join(" ", broker.topics());
    }

    private String pop(String file, int quiet) throws Exception {
        for (String topic : broker.topics()) {
            admin.popMode(broker.address(), topic, "popping");
        }
        return write(file, ServConsumers.push(nameServer, broker.topics(), "popping", true, quiet));
    }

    /** Answers as soon as the broker is out of the name server's table: what is left of its shutdown is seconds of sleep. */
    private String stop() throws InterruptedException {
        admin.stop();
        Thread thread = new Thread(broker::stop);
        thread.start();
        stopping.add(thread);
        while (thread.isAlive() && broker.isKnownTo(nameServers)) {
            Thread.sleep(5);
        }
        return "stopping";
    }

    /** Answers when all brokers are shut down. */
    private String ended() throws InterruptedException {
        for (Thread thread : stopping) {
            thread.join();
        }
        return "ended";
    }

    private static String write(String file, List<String> lines) throws Exception {
        Files.write(Path.of(file), lines);
        return String.valueOf(lines.size());
    }
}
