package oracle;

import java.io.BufferedWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.rocksdb.ColumnFamilyDescriptor;
import org.rocksdb.ColumnFamilyHandle;
import org.rocksdb.DBOptions;
import org.rocksdb.Options;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksIterator;

/** Writes all pairs of a RocksDB database, as the jar of this release reads them: lines of family, key and value in hex. */
final class Pairs {
    private Pairs() {
    }

    public static void main(String[] argv) {
        Main.run("usage: Pairs FOLDER OUT", () -> {
            RocksDB.loadLibrary();
            List<ColumnFamilyDescriptor> families = new ArrayList<>();
            for (byte[] name : RocksDB.listColumnFamilies(new Options(), argv[0])) {
                families.add(new ColumnFamilyDescriptor(name));
            }
            List<ColumnFamilyHandle> handles = new ArrayList<>();
            HexFormat hex = HexFormat.of();
            try (RocksDB database = RocksDB.openReadOnly(new DBOptions(), argv[0], families, handles);
                BufferedWriter out = Files.newBufferedWriter(Path.of(argv[1]))) {
                for (ColumnFamilyHandle handle : handles) {
                    String family = new String(handle.getName(), StandardCharsets.UTF_8);
                    try (RocksIterator pairs = database.newIterator(handle)) {
                        for (pairs.seekToFirst(); pairs.isValid(); pairs.next()) {
                            out.write(family + "\t" + hex.formatHex(pairs.key()) + "\t" + hex.formatHex(pairs.value()) + "\n");
                        }
                        pairs.status();
                    }
                    handle.close();
                }
            }
        });
    }
}
