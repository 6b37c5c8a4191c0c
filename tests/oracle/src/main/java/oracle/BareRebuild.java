package oracle;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.store.CommitLogDispatcher;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** What the real store makes of a bare commitlog, without the races it has with itself where files are small. */
final class BareRebuild {
    private static final long PATIENCE = TimeUnit.SECONDS.toNanos(40);

    /**
     * Stands last in the store's list of dispatchers. IndexService names a file by the millisecond, and lets a thread of its own
     * flush the full file before it and move the checkpoint: two files made in one millisecond would be one, and two such
     * threads could move the checkpoint back. So after each new file, wait for the thread, and for the next millisecond.
     */
    private static final class Patient implements CommitLogDispatcher {
        private final Path index;
        private int files;
        private volatile long lastNanos = System.nanoTime();

        Patient(Path index) {
            this.index = index;
        }

        @Override
        public void dispatch(DispatchRequest request) {
            lastNanos = System.nanoTime();
            String[] names = index.toFile().list();
            int found = names == null ? 0 : names.length;
            if (found == files) {
                return;
            }
            files = found;
            long made = System.currentTimeMillis();
            try {
                while (flushing() || System.currentTimeMillis() == made) {
                    Thread.sleep(1);
                }
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }

        private static boolean flushing() {
            Thread[] threads = new Thread[200];
            int count = Thread.currentThread().getThreadGroup().enumerate(threads);
            for (int i = 0; i < count; i++) {
                if (threads[i].getName().startsWith("FlushIndexFileThread")) {
                    return true;
                }
            }
            return false;
        }
    }

    private BareRebuild() {
    }

    /** Rebuilds in {@code root}, which holds a commitlog alone. All the store's threads are of the caller's group. */
    static void run(Plan plan, Path root) throws Exception {
        MessageStoreConfig config = Settings.of(root);
        plan.configure(config);
        // A flush of queues that overlaps the last dispatch would leave an older time in the checkpoint: only the last one counts.
        config.setFlushIntervalConsumeQueue(Integer.MAX_VALUE);
        OracleStore store = ScenarioStore.make(config, null);
        Patient patient = new Patient(root.resolve("index"));
        store.getDispatcherList().addLast(patient);
        if (!store.load()) {
            throw new Main.Failure("the store does not load");
        }
        store.start();
        while (store.dispatchBehindBytes() > 0) {
            if (System.nanoTime() - patient.lastNanos > PATIENCE) {
                throw new Main.Failure("the store dispatches no further");
            }
            Thread.sleep(2);
        }
        Thread.currentThread().interrupt();
        store.shutdown();
        Thread.interrupted();
        if (Files.exists(root.resolve("abort"))) {
            throw new Main.Failure("the store did not shut down cleanly");
        }
    }
}
