package s3proxy;

import java.util.Properties;
import org.gaul.s3proxy.BlobStores;
import org.gaul.s3proxy.S3Proxy;

/** An S3 server on loopback that keeps its objects in memory: prints its port; ends when stdin does. */
public final class Server {
    private Server() {
    }

    public static void main(String[] words) throws Exception {
        Properties settings = new Properties();
        settings.setProperty("s3proxy.endpoint", "http://127.0.0.1:0");
        settings.setProperty("s3proxy.authorization", "aws-v2-or-v4");
        settings.setProperty("s3proxy.identity", words[0]);
        settings.setProperty("s3proxy.credential", words[1]);
        S3Proxy server = S3Proxy.Builder.fromProperties(settings).blobStore(BlobStores.create("transient", settings)).build();
        server.start();
        System.out.println("port " + server.getPort());
        System.out.flush();
        while (System.in.read() >= 0) {
            continue;
        }
        System.exit(0);
    }
}
