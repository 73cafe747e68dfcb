package org.opensearch.protobufs;

/** Only the name is needed: k-NN refers to the gRPC transport, which a node without gRPC does not have. */
public class QueryContainer {
    public enum QueryContainerCase {}
}
