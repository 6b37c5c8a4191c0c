package oracle;

import java.net.BindException;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.proxy.ProxyStartup;
import org.apache.rocketmq.remoting.common.TlsMode;
import org.apache.rocketmq.remoting.netty.TlsSystemConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** A name server, a broker on a store that a test names, and a proxy before them, all in this JVM. */
final class Proxied {
    private final Path scratch = Path.of(System.getProperty("user.home"));
    private ServBroker broker;

    private Proxied() {
    }

    public static void main(String[] argv) {
        Main.run("usage: Proxied   (steps on stdin: boot, proxy, local, pull, stop)", () -> {
            System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
            System.setProperty(TlsSystemConfig.TLS_SERVER_MODE, "disabled");
            Proxied proxied = new Proxied();
            CrashSteps.run(Map.of(
                "boot", words -> proxied.boot(words.get(0), Path.of(words.get(1)), words.subList(2, words.size())),
                "proxy", words -> startProxy(proxied.scratch, proxied.broker.nameServer(), words),
                "local", words -> proxied.startLocal(Path.of(words.get(0))),
                "pull", words -> proxied.pull(Path.of(words.get(0)), words.subList(1, words.size())),
                "stop", words -> proxied.stop()), 1800);
        });
    }

    /** Answers the address of the name server. */
    private String boot(String brokerName, Path root, List<String> options) throws Exception {
        NamesrvController nameServers = ServBroker.nameServer(scratch);
        Args args = new Args(options.toArray(new String[0]),
            Set.of("segment-size", "cq-file-size", "hash-slots", "index-items", "set"), Set.of("timer-wheel"));
        broker = ServBroker.boot(brokerName, root, args, nameServers);
        return broker.nameServer();
    }

    /** Answers the port of the proxy. Its cluster is the broker's default one. With files of a certificate and a key it takes TLS. */
    static String startProxy(Path scratch, String nameServer, List<String> certificate) throws Exception {
        int port = freePort();
        String tls = "\"tlsTestModeEnable\": true";
        if (!certificate.isEmpty()) {
            tls = "\"tlsTestModeEnable\": false, \"tlsCertPath\": \"%s\", \"tlsKeyPath\": \"%s\"".formatted(certificate.toArray());
            TlsSystemConfig.tlsMode = TlsMode.PERMISSIVE;
        }
        Path file = scratch.resolve("rmq-proxy.json");
        Files.writeString(file, """
            {"rocketMQClusterName": "DefaultCluster", "proxyMode": "cluster", "grpcServerPort": %d,
             "remotingListenPort": %d, "namesrvAddr": "%s", "localServeAddr": "127.0.0.1", %s}
            """.formatted(port, freePort(), nameServer, tls));
        System.setProperty("rocketmq.home.dir", scratch.toString());
        ProxyStartup.main(new String[] {"-pc", file.toString()});
        return String.valueOf(port);
    }

    /** Answers the port of a proxy in local mode, which brings a broker on a store with it. */
    private String startLocal(Path root) throws Exception {
        NamesrvController nameServers = ServBroker.nameServer(scratch);
        int port = freePort();
        Path conf = scratch.resolve("broker.conf");
        Files.writeString(conf, """
            rocketmqHome=%s
            brokerName=local
            brokerIP1=127.0.0.1
            listenPort=%d
            namesrvAddr=%s
            autoCreateTopicEnable=false
            storePathRootDir=%s
            storePathCommitLog=%s
            mappedFileSizeCommitLog=16777216
            mappedFileSizeConsumeQueue=600000
            transactionMetricFlushInterval=500
            """.formatted(scratch, freePort(), ServBroker.address(nameServers), root, root.resolve("commitlog")));
        Path file = scratch.resolve("rmq-proxy.json");
        Files.writeString(file, """
            {"rocketMQClusterName": "DefaultCluster", "proxyMode": "local", "grpcServerPort": %d,
             "remotingListenPort": %d, "namesrvAddr": "%s", "localServeAddr": "127.0.0.1", "tlsTestModeEnable": true}
            """.formatted(port, freePort(), ServBroker.address(nameServers)));
        System.setProperty("rocketmq.home.dir", scratch.toString());
        ProxyStartup.main(new String[] {"-pc", file.toString(), "-bc", conf.toString()});
        return String.valueOf(port);
    }

    /** What a consumer is given of these topics: {@link ServConsumers#pull}. */
    private String pull(Path file, List<String> topics) throws Exception {
        List<String> lines = ServConsumers.pull(broker.nameServer(), topics, "*", 32, false);
        Files.write(file, lines);
        return String.valueOf(lines.size());
    }

    private String stop() {
        broker.stop();
        return "stopped";
    }

    /** A port that no connection of another program gets meanwhile: the system gives those from 32768 on. */
    private static int freePort() throws Exception {
        while (true) {
            try (ServerSocket socket = new ServerSocket(ThreadLocalRandom.current().nextInt(12_000, 32_000))) {
                return socket.getLocalPort();
            } catch (BindException taken) {
                // Another one, then.
            }
        }
    }
}
