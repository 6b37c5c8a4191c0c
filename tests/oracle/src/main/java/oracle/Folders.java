package oracle;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Stream;

/** Files and folders of a store. */
final class Folders {
    private Folders() {
    }

    /** The children of a folder by name; none if there is no such folder. */
    static List<Path> children(Path folder) throws IOException {
        if (!Files.isDirectory(folder)) {
            return List.of();
        }
        try (Stream<Path> found = Files.list(folder)) {
            return found.sorted().toList();
        }
    }

    /** A folder that is new or empty, made if need be. */
    static void claim(Path folder) throws IOException, Main.Failure {
        if (Files.exists(folder) && (!Files.isDirectory(folder) || !children(folder).isEmpty())) {
            throw new Main.Failure(folder + " is there already and not an empty folder");
        }
        Files.createDirectories(folder);
    }

    /** Deletes all of a store but its commitlog. */
    static void keepOnlyCommitlog(Path store) throws IOException {
        for (Path child : children(store)) {
            if (!child.getFileName().toString().equals("commitlog")) {
                delete(child);
            }
        }
    }

    static void delete(Path tree) throws IOException {
        try (Stream<Path> found = Files.walk(tree)) {
            for (Path path : found.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(path);
            }
        }
    }

    /**
     * Gives {@code to} the commitlog of {@code from}: by hard links, which is free and safe, since a store that is
     * put nothing only reads its segments (it may unlink some), or by copies where asked or where links cannot be.
     */
    static void takeCommitlog(Path from, Path to, boolean copy) throws IOException {
        Path log = Files.createDirectories(to.resolve("commitlog"));
        for (Path segment : children(from.resolve("commitlog"))) {
            Path target = log.resolve(segment.getFileName());
            if (copy) {
                Files.copy(segment, target);
                continue;
            }
            try {
                Files.createLink(target, segment);
            } catch (IOException | UnsupportedOperationException e) {
                Files.copy(segment, target);
            }
        }
    }
}
