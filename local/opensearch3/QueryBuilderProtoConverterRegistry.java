package org.opensearch.transport.grpc.spi;

/** Only the name is needed: k-NN refers to the gRPC transport, which a node without gRPC does not have. */
public interface QueryBuilderProtoConverterRegistry {}
