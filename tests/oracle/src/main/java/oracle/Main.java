package oracle;

/** How all programs end: 0 done, 1 failed, 2 wrong usage, each failure one line on stderr. */
final class Main {
    /** A program that may fail. */
    interface Program {
        void run() throws Exception;
    }

    /** A failure whose message says all there is to say. */
    static final class Failure extends Exception {
        Failure(String message) {
            super(message);
        }
    }

    private Main() {
    }

    /** Of the store, as given to {@code run}: MQVersion is of the common module, which 5.3.4 shares with 5.3.3. */
    static String version() {
        return System.getProperty("oracle.version");
    }

    static void run(String usage, Program program) {
        int status = 0;
        try {
            program.run();
        } catch (Args.UsageException e) {
            System.err.println(e.getMessage() + "\n" + usage);
            status = 2;
        } catch (Failure e) {
            System.err.println(e.getMessage());
            status = 1;
        } catch (Throwable e) {
            e.printStackTrace();
            status = 1;
        }
        // Threads of a store that failed half-way would keep the JVM alive, and its hooks could wait for them.
        System.out.flush();
        Runtime.getRuntime().halt(status);
    }
}
