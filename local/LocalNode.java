import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.opensearch.cluster.service.ClusterService;
import org.opensearch.common.settings.Settings;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.plugins.Plugin;

/** One OpenSearch 2.x node from the class path. Arguments: setting=value ...; PLUGINS=class,class in the environment. */
public class LocalNode extends Node {
    LocalNode(Settings settings, Path config, List<Class<? extends Plugin>> plugins) {
        super(InternalSettingsPreparer.prepareEnvironment(settings, Map.of(), config, () -> "local"), plugins, true);
    }

    @Override
    protected void configureNodeAndClusterIdStateListener(ClusterService clusterService) {}

    public static void main(String[] args) throws Exception {
        Settings.Builder builder = Settings.builder();
        for (String arg : args) {
            int equals = arg.indexOf('=');
            builder.put(arg.substring(0, equals), arg.substring(equals + 1));
        }
        List<Class<? extends Plugin>> plugins = new ArrayList<>();
        for (String name : System.getenv("PLUGINS").split(",")) {
            plugins.add(Class.forName(name).asSubclass(Plugin.class));
        }
        Settings settings = builder.build();
        Path config = Files.createDirectories(Path.of(settings.get("path.home"), "config"));
        LocalNode node = new LocalNode(settings, config, plugins);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> close(node)));
        node.start();
        Thread.currentThread().join();
    }

    private static void close(Node node) {
        try {
            node.close();
        } catch (Exception e) {
            e.printStackTrace();
        }
    }
}
