import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.opensearch.Version;
import org.opensearch.cluster.service.ClusterService;
import org.opensearch.common.settings.Settings;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.plugins.PluginInfo;

/** One OpenSearch 3.x node from the class path. Arguments: setting=value ...; PLUGINS=class,class in the environment. */
public class LocalNode3 extends Node {
    LocalNode3(Settings settings, Path config, List<PluginInfo> plugins) {
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
        List<PluginInfo> plugins = new ArrayList<>();
        for (String name : System.getenv("PLUGINS").split(",")) {
            plugins.add(new PluginInfo(name, "local", "0", Version.CURRENT, "21", name, (String) null, List.of(), false));
        }
        Settings settings = builder.build();
        Path config = Files.createDirectories(Path.of(settings.get("path.home"), "config"));
        LocalNode3 node = new LocalNode3(settings, config, plugins);
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
