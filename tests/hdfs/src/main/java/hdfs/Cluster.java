package hdfs;

import java.io.File;
import java.util.logging.LogManager;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/**
 * An HDFS of one name node and one data node on loopback: prints two ports, of its web interface and its own
 * protocol; ends when stdin does.
 */
public final class Cluster {
    private Cluster() {
    }

    public static void main(String[] words) throws Exception {
        // The tests tell what went wrong; what Hadoop says at its end looks like errors.
        LogManager.getLogManager().reset();
        Configuration conf = new Configuration();
        conf.set("dfs.replication", "1");
        conf.set("dfs.permissions.enabled", "false");
        conf.set("dfs.namenode.fs-limits.min-block-size", "1024");
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(conf, new File(words[0])).numDataNodes(1).build();
        cluster.waitActive();
        System.out.println("ports " + cluster.getNameNode().getHttpAddress().getPort() + " " + cluster.getNameNodePort());
        System.out.flush();
        while (System.in.read() >= 0) {
            continue;
        }
        cluster.shutdown(true);
    }
}
