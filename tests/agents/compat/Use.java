// Java: a program in one source file; threads, a process, a socket, a temporary file.
import java.io.IOException;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.Executors;

public final class Use {
    public static void main(String[] arguments) throws Exception {
        Path file = Files.createTempFile("use", ".txt");
        Files.writeString(file, "text");
        var threads = Executors.newFixedThreadPool(8);
        if (threads.submit(() -> 42).get() != 42) throw new IllegalStateException();
        threads.shutdown();
        if (new ProcessBuilder("sh", "-c", "exit 7").start().waitFor() != 7) throw new IOException();
        try (var server = new ServerSocket(0, 1, java.net.InetAddress.getLoopbackAddress());
             var client = new Socket("localhost", server.getLocalPort());
             var accepted = server.accept()) {
            client.getOutputStream().write(1);
            if (accepted.getInputStream().read() != 1) throw new IOException();
        }
        if (System.getProperty("user.name").equals("?")) throw new IOException("nobody");
        System.out.println("all of it works");
    }
}
