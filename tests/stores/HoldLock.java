import java.io.RandomAccessFile;
import java.nio.channels.FileLock;

/** Holds a store's lock as DefaultMessageStore.start does, until stdin ends; says whether it got it. */
class HoldLock {
    public static void main(String[] words) throws Exception {
        FileLock lock = new RandomAccessFile(words[0], "rw").getChannel().tryLock(0, 1, false);
        System.out.println(lock != null);
        System.out.flush();
        while (System.in.read() >= 0) {
            continue;
        }
    }
}
