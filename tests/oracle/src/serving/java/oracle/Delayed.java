package oracle;

import static java.util.Map.entry;

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

/**
 * A broker that is sent delayed messages, timer messages and half messages until it is killed, or until a test has seen
 * enough. Of 4.9 and 5.x alike: what {@link Serve} has beyond it is of 5.x.
 */
final class Delayed {
    private final Path scratch = Path.of(System.getProperty("user.home"));
    private ServBroker broker;
    private String name;
    private ServTransactions transactions;
    private final List<Thread> sending = new ArrayList<>();
    private volatile Throwable failed;
    private NamesrvController nameServers;

    private Delayed() {
    }

    public static void main(String[] argv) {
        Main.run("usage: Delayed   (steps on stdin: boot, leads, send, traced, transact, sent, answer, checked, again, pull, traces, stop)", () -> {
            System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
            System.setProperty(TlsSystemConfig.TLS_SERVER_MODE, "disabled");
            Delayed delayed = new Delayed();
            CrashSteps.run(Map.ofEntries(
                entry("boot", words -> delayed.boot(words.get(0), Path.of(words.get(1)), words.subList(2, words.size()))),
                entry("leads", words -> delayed.leads()),
                entry("send", words -> delayed.send(Files.readAllLines(Path.of(words.get(0))), false)),
                entry("traced", words -> delayed.send(Files.readAllLines(Path.of(words.get(0))), true)),
                entry("transact", words -> delayed.transact(Files.readAllLines(Path.of(words.get(0))))),
                entry("sent", words -> delayed.sent()),
                entry("answer", words -> delayed.answer(words.get(0), words.get(1))),
                entry("checked", words -> String.join(",", delayed.transactions.checked())),
                entry("again", words -> delayed.again(words.get(0), words.get(1), words.subList(2, words.size()))),
                entry("pull", words -> delayed.pull(Path.of(words.get(0)), words.subList(1, words.size()))),
                entry("traces", words -> delayed.traces(Path.of(words.get(0)))),
                entry("stop", words -> delayed.stop())), 1800);
        });
    }

    /** Answers where the broker sees the log's end. */
    private String boot(String brokerName, Path root, List<String> options) throws Exception {
        nameServers = ServBroker.nameServer(scratch);
        Args args = new Args(options.toArray(new String[0]),
            Set.of("segment-size", "cq-file-size", "hash-slots", "index-items", "set"), Set.of("timer-wheel"));
        name = brokerName;
        broker = ServBroker.boot(name, root, args, nameServers);
        while (broker.behind() > 0) {
            Thread.sleep(5);
        }
        return String.valueOf(broker.end());
    }

    /** Waits until the broker leads its group of DLedger. */
    private String leads() throws Exception {
        while (!broker.leads(nameServers)) {
            Thread.sleep(20);
        }
        return "leads";
    }

    /** Sends the messages of {@code lines} in a thread of its own, as {@link ServProducer#sendLines} says. */
    private String send(List<String> lines, boolean traced) {
        return inThread(() -> ServProducer.sendLines(broker.nameServer(), name, lines, traced));
    }

    /** The same of transactions: {@link ServTransactions}. */
    private String transact(List<String> lines) throws Exception {
        if (transactions == null) {
            transactions = new ServTransactions(broker.nameServer());
        }
        return inThread(() -> transactions.send(lines));
    }

    /** What a check of half messages gets from now on; {@code topic} is one that the producer greets the broker with. */
    private String answer(String topic, String answer) throws Exception {
        if (transactions == null) {
            transactions = new ServTransactions(broker.nameServer());
            transactions.greet(topic);
        }
        transactions.answer(answer);
        return answer;
    }

    /** Waits until all is sent. */
    private String sent() throws Exception {
        for (Thread one : sending) {
            one.join();
        }
        if (failed != null) {
            throw new Main.Failure("not all is sent: " + failed);
        }
        return "all";
    }

    /**
     * A consumer that gives messages back: {@link ServConsumers#again}. A third word is a file; others say that it pops, or
     * that it is traced.
     */
    private String again(String group, String topic, List<String> words) throws Exception {
        ServConsumers.again(
            broker.nameServer(), group, topic, Integer.parseInt(words.get(0)), Integer.parseInt(words.get(1)),
            words.contains("pop"), words.contains("traced"), words.size() > 2 ? Path.of(words.get(2)) : null);
        return "consuming";
    }

    /** What a consumer is given of these topics: {@link ServConsumers#pull}. */
    private String pull(Path file, List<String> topics) throws Exception {
        List<String> lines = ServConsumers.pull(broker.nameServer(), topics, "*", 32, false);
        Files.write(file, lines);
        return String.valueOf(lines.size());
    }

    /** What the broker has of traces: {@link ServTraces}. */
    private String traces(Path file) throws Exception {
        Files.write(file, ServTraces.read(broker.nameServer()));
        return "read";
    }

    /** Stops the broker as an operator does; it has written all of its files when this answers. */
    private String stop() {
        broker.stop();
        return "stopped";
    }

    private String inThread(Main.Program program) {
        Thread one = new Thread(() -> {
            try {
                program.run();
            } catch (Throwable e) {
                e.printStackTrace();
                failed = e;
            }
        });
        one.setDaemon(true);
        one.start();
        sending.add(one);
        return "sending";
    }
}
