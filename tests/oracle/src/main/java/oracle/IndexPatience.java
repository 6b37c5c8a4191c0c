package oracle;

import java.nio.file.Path;
import org.apache.rocketmq.store.CommitLogDispatcher;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;

/**
 * Keeps a store whose index files are small from racing with itself. IndexService names a file by the millisecond, and lets a
 * thread of its own flush the full file before it and move the checkpoint: two files made in one millisecond would be one, and
 * two such threads could move the checkpoint back, or come when the store is closed. So after each new file, before the next
 * record: wait for the thread, and for the next millisecond.
 */
final class IndexPatience implements CommitLogDispatcher {
    private final Path index;
    private int files;
    private volatile long lastNanos = System.nanoTime();

    private IndexPatience(Path index) {
        this.index = index;
        files = count();
    }

    /** Of a store in {@code root} that is not loaded yet: stands last in its list of dispatchers. */
    static IndexPatience of(DefaultMessageStore store, Path root) {
        IndexPatience patience = new IndexPatience(root.resolve("index"));
        store.getDispatcherList().addLast(patience);
        return patience;
    }

    /** When a record was dispatched last, by System.nanoTime. */
    long lastNanos() {
        return lastNanos;
    }

    @Override
    public void dispatch(DispatchRequest request) {
        lastNanos = System.nanoTime();
        int found = count();
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

    private int count() {
        String[] names = index.toFile().list();
        return names == null ? 0 : names.length;
    }

    /** Whether there is such a thread: a store's threads are of the group of the thread that started it. */
    private static boolean flushing() {
        ThreadGroup group = Thread.currentThread().getThreadGroup();
        Thread[] threads = new Thread[2 * group.activeCount() + 100];
        int count = group.enumerate(threads);
        for (int i = 0; i < count; i++) {
            if (threads[i].getName().startsWith("FlushIndexFileThread")) {
                return true;
            }
        }
        return false;
    }
}
