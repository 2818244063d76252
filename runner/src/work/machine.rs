//! What the runner knows about its machine: measurements mean nothing without it.

use std::{collections::BTreeMap, fs};

/// Facts for the record.
pub fn facts() -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    let mut put = |name: &str, value: Option<String>| {
        if let Some(value) = value.map(|value| value.trim().to_owned()).filter(|value| !value.is_empty()) {
            facts.insert(name.to_owned(), value);
        }
    };
    put("host", fs::read_to_string("/proc/sys/kernel/hostname").ok());
    put("kernel", fs::read_to_string("/proc/sys/kernel/osrelease").ok());
    put("os", Some(format!("{} {}", std::env::consts::OS, std::env::consts::ARCH)));
    put("cpu", fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| cpu_model(&text)));
    put("cores", std::thread::available_parallelism().ok().map(|cores| cores.to_string()));
    put("memory", fs::read_to_string("/proc/meminfo").ok().and_then(|text| memory(&text)));
    put("governor", fs::read_to_string("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").ok());
    facts
}

/// Load average of the last minute.
pub fn load() -> Option<String> {
    Some(fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.to_owned())
}

fn cpu_model(cpuinfo: &str) -> Option<String> {
    cpuinfo
        .lines()
        .find_map(|line| line.split_once(':').filter(|(name, _)| name.trim() == "model name").map(|(_, model)| model.trim().to_owned()))
}

fn memory(meminfo: &str) -> Option<String> {
    let kib: u64 = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(format!("{} MiB", kib / 1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read_from_proc() {
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: AMD EPYC: x\n"), Some("AMD EPYC: x".to_owned()));
        assert_eq!(memory("MemTotal:       24042356 kB\n"), Some("23478 MiB".to_owned()));
        assert!(facts().contains_key("cores"));
    }
}
