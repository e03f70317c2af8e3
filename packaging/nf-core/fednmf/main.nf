process FEDNMF {
    tag "$meta.id"
    label 'process_medium'

    conda "${moduleDir}/environment.yml"

    input:
    tuple val(meta), path(matrix)
    val k

    output:
    tuple val(meta), path("${prefix}.h5"), emit: factors
    tuple val(meta), path("${prefix}.html"), emit: report
    tuple val("${task.process}"), val('fednmf'), eval("fednmf -V | cut -d ' ' -f 2"), topic: versions, emit: versions_fednmf

    when:
    task.ext.when == null || task.ext.when

    script:
    def args = task.ext.args ?: ''
    prefix = task.ext.prefix ?: "${meta.id}"
    """
    fednmf \\
        --input $matrix \\
        -k $k \\
        --threads $task.cpus \\
        $args \\
        --output ${prefix}.h5 \\
        --report ${prefix}.html
    """

    stub:
    prefix = task.ext.prefix ?: "${meta.id}"
    """
    touch ${prefix}.h5 ${prefix}.html
    """
}
