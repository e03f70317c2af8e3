//! Decentralised methods: agents on a graph, and their centralised counterpart.

pub mod admm;
pub mod ppdnmf;

#[cfg(test)]
mod scratch_check {
    #[test]
    fn print_options() {
        use crate::algorithms::registry;
        for name in ["syn-sd","syn-ssd-u","syn-ssd-v","syn-ssd-uv","asyn-sd","asyn-ssd-v","secure-hals","dsanls-secure","ppdnmf","admm"] {
            let entry = registry::find(name).unwrap();
            let m = clap::Command::new("fednmf").args(entry.options()).get_matches_from(["fednmf"]);
            let c = entry.configure(&m).unwrap();
            println!("JSON {name} {}", serde_json::Value::Object(c.parameters()));
            for o in entry.options() {
                println!("OPT {name} {} {:?} {:?}", o.get_long().unwrap(), o.get_default_values(), o.get_value_names());
            }
        }
        let entry = registry::find("ppdnmf").unwrap();
        let cmd = || clap::Command::new("fednmf").args(entry.options());
        println!("{}", cmd().render_long_help());
        for t in [["--crypto-threads","100000"],["--crypto-threads","0"],["--key-bits","1024"],["--topology","random:degree=x"]] {
            println!("{}", cmd().try_get_matches_from(["fednmf"].iter().chain(&t)).unwrap_err());
        }
        let m = cmd().get_matches_from(["fednmf","--key-bits","128"]);
        println!("{}", entry.configure(&m).unwrap_err());
        for (name, typed) in [("asyn-sd", "--clock real --replay x --record-order y"), ("secure-hals","--sketch-size 10"),("secure-hals","--sketch subsample --extrapolation restart"),("dsanls-secure","--sketch count"),("syn-sd","--secure-threshold 3"),("syn-ssd-u","--secure-threshold 3"),("syn-sd","--epsilon 1")] {
            let entry = registry::find(name).unwrap();
            let m = clap::Command::new("fednmf").args(entry.options()).get_matches_from(["fednmf"].into_iter().chain(typed.split(' ')));
            println!("{name} {typed}: {}", entry.configure(&m).unwrap_err());
        }
    }
}
