import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;

/** Asks for what follows the address on the command line, keeping its connection; says what came. */
public class Client {
    public static void main(String[] words) throws Exception {
        var client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        var base = "http://" + words[0] + "/";
        for (int i = 1; i < words.length; i++) {
            var request = HttpRequest.newBuilder(URI.create(base + words[i])).build();
            System.out.write(client.send(request, BodyHandlers.ofByteArray()).body());
        }
        var content = HttpRequest.BodyPublishers.ofString("y".repeat(300_000));
        var upload = HttpRequest.newBuilder(URI.create(base + "cgi/size")).POST(content).build();
        System.out.write(client.send(upload, BodyHandlers.ofByteArray()).body());
        System.out.flush();
    }
}
