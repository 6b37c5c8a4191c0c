package oracle;

import static java.util.Map.entry;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.TlsSystemConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * A name server, one broker or several, a proxy, and RocketMQ's own clients, all in this JVM: a test kills all of them at once.
 * What the clients saw stands in a file by then: {@link FatedClients}.
 */
final class Fated {
    private final Path scratch = Path.of(System.getProperty("user.home"));
    private final Map<String, ServBroker> brokers = new LinkedHashMap<>();
    private final List<Thread> sending = new ArrayList<>();
    private NamesrvController nameServers;
    private FatedClients clients;

    private Fated() {
    }

    public static void main(String[] argv) {
        Main.run("usage: Fated   (steps on stdin: boot, knows, register, name server, proxy, clients, send, consume, end, empty, sent, part, mqadmin, stop)", () -> {
            System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
            System.setProperty(TlsSystemConfig.TLS_SERVER_MODE, "disabled");
            // Clients share queues out each 20 s.
            System.setProperty("rocketmq.client.rebalance.waitInterval", "1000");
            Fated fated = new Fated();
            CrashSteps.run(Map.ofEntries(
                entry("boot", words -> fated.boot(words.get(0), Path.of(words.get(1)), words.subList(2, words.size()))),
                entry("knows", words -> fated.knows(words.get(0))),
                entry("register", words -> fated.register(words.get(0))),
                entry("name server", words -> fated.nameServer()),
                entry("proxy", words -> Proxied.startProxy(fated.scratch, fated.nameServer(), List.of())),
                entry("clients", words -> fated.start(Path.of(words.get(0)))),
                entry("send", words -> fated.send(Files.readAllLines(Path.of(words.get(0))))),
                entry("consume", words -> fated.consume(words)),
                entry("end", words -> fated.clients.end(words.get(0))),
                entry("empty", words -> fated.empty(words.get(0))),
                entry("sent", words -> fated.sent()),
                entry("part", words -> fated.part()),
                entry("mqadmin", words -> fated.mqadmin(Path.of(words.get(0)), Files.readAllLines(Path.of(words.get(1))))),
                entry("stop", words -> fated.stop())), 1800);
        });
    }

    /** The first broker brings a name server with it, unless it has that of another program. */
    private String boot(String name, Path root, List<String> options) throws Exception {
        Args args = new Args(options.toArray(new String[0]),
            Set.of("segment-size", "cq-file-size", "hash-slots", "index-items", "set", "name-server"), Set.of("timer-wheel"));
        if (nameServers == null && !args.has("name-server")) {
            nameServers = ServBroker.nameServer(scratch);
        }
        ServBroker broker = ServBroker.boot(name, root, args, nameServers);
        brokers.put(name, broker);
        while (broker.behind() > 0) {
            Thread.sleep(5);
        }
        return String.valueOf(broker.end());
    }

    /** Whether clients are told of a broker that another program has. */
    private String knows(String broker) {
        return String.valueOf(nameServers.getRouteInfoManager().getAllClusterInfo().getBrokerAddrTable().containsKey(broker));
    }

    private String register(String broker) {
        brokers.get(broker).register();
        return "registered";
    }

    private String nameServer() {
        return ServBroker.address(nameServers);
    }

    private String start(Path journal) throws Exception {
        clients = new FatedClients(nameServer(), journal);
        return "started";
    }

    private String send(List<String> lines) {
        Thread one = new Thread(() -> clients.send(lines));
        one.setDaemon(true);
        one.start();
        sending.add(one);
        return "sending";
    }

    /** Kind, group, whether it is traced and whether it gives messages back, then topics; those of light queues are queues. */
    private String consume(List<String> words) throws Exception {
        List<String> traits = List.of(words.get(2).split(",")), topics = words.subList(3, words.size());
        if (words.get(0).equals("light")) {
            // A topic, then the brokers.
            clients.readLight(words.get(1), traits.get(0), traits.subList(1, traits.size()), topics);
        } else {
            clients.consume(words.get(0), words.get(1), Set.copyOf(traits), topics);
        }
        return "consuming";
    }

    /** The broker takes nothing more: what is given back to it goes to another. */
    private String empty(String name) {
        brokers.get(name).takeNothing();
        return "emptied";
    }

    private String sent() throws InterruptedException {
        for (Thread one : sending) {
            one.join();
        }
        return "all";
    }

    /** The clients end as their programs do, once they have told their offsets and sent their traces. */
    private String part() throws InterruptedException {
        clients.stop();
        return "parted";
    }

    /** What {@code mqadmin queryMsgTraceById} prints of each id, into files of these names. */
    private String mqadmin(Path folder, List<String> ids) throws Exception {
        Files.createDirectories(folder);
        for (String id : ids) {
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream before = System.out;
            System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
            try {
                MQAdminStartup.main0(new String[] {"queryMsgTraceById", "-n", nameServer(), "-i", id, "-c", "1000"}, null);
            } finally {
                System.setOut(before);
            }
            Files.write(folder.resolve(id), printed.toByteArray());
        }
        return "asked";
    }

    /** Stops the brokers as an operator does; they have written all of their files when this answers. */
    private String stop() {
        brokers.values().forEach(ServBroker::stop);
        return "stopped";
    }
}
