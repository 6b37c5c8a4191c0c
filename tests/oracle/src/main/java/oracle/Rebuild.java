package oracle;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import org.apache.rocketmq.store.CommitLogDispatcher;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** Lets the real store build ConsumeQueue, index and checkpoint from a commitlog, and says how long that took. */
final class Rebuild {
    private static final String USAGE = "usage: Rebuild STORE --out DIR [--copy] | --in-place"
        + " [--segment-size N] [--cq-file-size N] [--hash-slots N] [--index-items N] [--enable-lmq] [--recover-segments N] [--stall SECONDS]";

    /** Items of an IndexFile that is full so soon that the store races with itself. It costs time, so larger ones go without. */
    private static final int SMALL_INDEX = 10_000;

    /** Stands last in the store's list of dispatchers: what it sees has been dispatched by all the others. */
    private static final class Progress implements CommitLogDispatcher {
        private long lastOffset = -1;
        private volatile long records;
        private volatile long lastNanos = System.nanoTime();

        @Override
        public void dispatch(DispatchRequest request) {
            // A store that recovers from an unclean exit dispatches records again: count each one once.
            if (request.getCommitLogOffset() > lastOffset) {
                lastOffset = request.getCommitLogOffset();
                records = records + 1;
                lastNanos = System.nanoTime();
            }
        }
    }

    private Rebuild() {
    }

    public static void main(String[] argv) {
        Main.run(USAGE, () -> run(new Args(argv,
            Set.of("out", "segment-size", "cq-file-size", "hash-slots", "index-items", "recover-segments", "stall"),
            Set.of("copy", "in-place", "enable-lmq"))));
    }

    private static void run(Args args) throws Exception {
        Path source = Path.of(args.word("store folder"));
        if (args.has("in-place") == args.has("out")) {
            throw new Args.UsageException("either --out DIR or --in-place");
        }
        if (!Files.isDirectory(source)) {
            throw new Main.Failure("no such folder: " + source);
        }
        Path root = args.has("out") ? Path.of(args.required("out")) : source;
        MessageStoreConfig config = Settings.of(root, args, sizeOfSegments(source));
        Settings.recoverSegments(config, args.count("recover-segments", Integer.MAX_VALUE));
        if (args.has("out")) {
            Folders.claim(root);
            Folders.takeCommitlog(source, root, args.has("copy"));
        }
        long stall = args.size("stall", 60);

        Progress progress = new Progress();
        long begin = System.nanoTime();
        OracleStore store = new OracleStore(config, null);
        store.getDispatcherList().addLast(progress);
        if (config.getMaxIndexNum() <= SMALL_INDEX) {
            IndexPatience.of(store, root);
        }
        Thread watchdog = watch(progress, stall);
        if (!store.load()) {
            throw new Main.Failure("the store in " + root + " does not load");
        }
        store.start();
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(2);
        }
        long end = progress.records == 0 ? System.nanoTime() : progress.lastNanos;
        watchdog.interrupt();
        store.shutdown();
        if (Files.exists(root.resolve("abort"))) {
            throw new Main.Failure("the store in " + root + " did not shut down cleanly");
        }
        System.out.printf(Locale.ROOT, "{\"records\": %d, \"seconds\": %.3f, \"version\": \"%s\"}%n",
            progress.records, (end - begin) / 1e9, Main.version());
    }

    /** All segments of a log have one size. Without any, the size does not matter. */
    private static long sizeOfSegments(Path store) throws IOException {
        List<Path> segments = Folders.children(store.resolve("commitlog"));
        return segments.isEmpty() ? Settings.SEGMENT_SIZE : Files.size(segments.get(0));
    }

    /** Ends the JVM when nothing moves any more: on some damaged logs 4.9 waits for ever. */
    private static Thread watch(Progress progress, long seconds) {
        Thread thread = new Thread(() -> {
            try {
                while (System.nanoTime() - progress.lastNanos < seconds * 1_000_000_000L) {
                    Thread.sleep(100);
                }
                System.err.println("no progress for " + seconds + " s after " + progress.records + " records");
                Runtime.getRuntime().halt(1);
            } catch (InterruptedException e) {
                // dispatched to the end
            }
        });
        thread.setDaemon(true);
        thread.start();
        return thread;
    }
}
